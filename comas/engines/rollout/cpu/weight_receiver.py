"""The engine's side of a weight update through shared memory, on a CPU."""

from dataclasses import dataclass

import torch
from torch import nn
from vllm.distributed.weight_transfer import WeightTransferEngine
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader.reload.layerwise import (
    finalize_layerwise_reload,
    get_layerwise_info,
    initialize_layerwise_reload,
)

from comas.utils.processes import return_free_memory


@dataclass
class SharedMemoryInitInfo(WeightTransferInitInfo):
    """Empty, since an update needs no preparation."""


@dataclass
class SharedMemoryUpdateInfo(WeightTransferUpdateInfo):
    """The file that holds the weights."""

    path: str


def check_layers(model: nn.Module) -> None:
    """Raise ValueError for a model with layers whose weights vLLM transforms in unknown ways, such
    as mixtures of experts."""
    unknown = [
        name
        for name, layer in model.named_modules()
        if isinstance(getattr(layer, "quant_method", None), QuantizeMethodBase)
        and not isinstance(layer, LinearBase | VocabParallelEmbedding)
    ]
    if unknown:
        raise ValueError(
            f"society.models: {len(unknown)} layers, first {unknown[0]}, are neither linear nor "
            "embeddings; on a CPU such models (mixtures of experts) cannot be updated: choose "
            "another, or use GPUs"
        )


class SharedMemoryWeightTransferEngine(
    WeightTransferEngine[SharedMemoryInitInfo, SharedMemoryUpdateInfo]
):
    """Loads weights into the running model (vLLM's worker-side interface)."""

    init_info_cls = SharedMemoryInitInfo
    update_info_cls = SharedMemoryUpdateInfo

    def init_transfer_engine(self, init_info: SharedMemoryInitInfo) -> None:
        """Raise ValueError when a layer cannot be updated."""
        check_layers(self.model)
        layers = list(self.model.modules())
        self._heads = [layer for layer in layers if isinstance(layer, ParallelLMHead)]
        if not self._heads:  # vLLM 0.26: some tied heads are the embeddings themselves
            self._heads = [layer for layer in layers if isinstance(layer, VocabParallelEmbedding)]

    def start_weight_update(self) -> None:
        """Make the layers, which hold packed weights, accept new ones."""
        self._missing = {name for name, _ in self.model.named_parameters()}
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: SharedMemoryUpdateInfo) -> None:
        """Pass the weights to the model's own loader, which handles fused and tied parameters."""
        weights = torch.load(update_info.path, mmap=True)
        self._missing -= self.model.load_weights(weights.items())

    def finish_weight_update(self) -> None:
        """Pack the loaded weights. Raises ValueError when a parameter was not loaded, or only in
        part, which vLLM would just log."""
        for name, layer in self.model.named_modules():
            info = get_layerwise_info(layer)
            if isinstance(layer, LinearBase) and info.can_load():  # false once it is complete
                self._missing.add(f"{name}.weight")
        # Even after a partial update: this state is shared by all models of a process.
        finalize_layerwise_reload(self.model, self.model_config)
        if self._missing:
            raise ValueError(f"a weight update left out {', '.join(sorted(self._missing))}")
        # Trap: a tied head receives no weights of its own: its packed copy would stay stale.
        for layer in self._heads:
            layer.quant_method.process_weights_after_loading(layer)
        return_free_memory()

    def shutdown(self) -> None:
        """Do nothing."""

    @staticmethod
    def trainer_send_weights(*_: object) -> None:
        """Not called (see ``SharedMemoryWeightSender``); vLLM 0.26 requires it."""
        raise NotImplementedError
