"""The engine's end of a weight update through shared memory, into a model on the CPU."""

from dataclasses import dataclass

from torch import nn
from vllm.distributed.weight_transfer import WeightTransferEngine
from vllm.distributed.weight_transfer.base import (
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
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

from comas.engines.rollout.cpu.shared_weights import WeightMetadata, mapped_weights
from comas.utils.processes import return_free_memory


@dataclass
class SharedMemoryInitInfo(WeightTransferInitInfo):
    """The shared memory, and the parameters that it holds."""

    path: str
    metadata: list[WeightMetadata]


@dataclass
class SharedMemoryUpdateInfo(WeightTransferUpdateInfo):
    """The Hugging Face names of parameters that have been written."""

    names: list[str]


def check_layers(model: nn.Module) -> None:
    """Refuse a model with layers whose weights vLLM transforms in ways that are not known here.

    Raises:
        ValueError: it has such layers, for instance a mixture of experts.
    """
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
        """Map the weights. Raises ValueError when the model has layers that cannot be updated."""
        check_layers(self.model)
        self._shared = mapped_weights(init_info.path, init_info.metadata)
        layers = list(self.model.modules())
        self._heads = [layer for layer in layers if isinstance(layer, ParallelLMHead)]
        if not self._heads:  # in vLLM 0.26 some tied heads are the embeddings themselves
            self._heads = [layer for layer in layers if isinstance(layer, VocabParallelEmbedding)]

    def start_weight_update(self) -> None:
        """Make the layers accept weights again, of which vLLM keeps packed copies."""
        self._missing = {name for name, _ in self.model.named_parameters()}
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: SharedMemoryUpdateInfo) -> None:
        """Hand a chunk to the model's own loader, which knows fused and tied parameters."""
        weights = ((name, self._shared[name]) for name in update_info.names)
        self._missing -= self.model.load_weights(weights)

    def finish_weight_update(self) -> None:
        """Pack what was loaded. Raises ValueError when a parameter got no values, or only a part of
        them, which vLLM would only log."""
        for name, layer in self.model.named_modules():
            info = get_layerwise_info(layer)
            if isinstance(layer, LinearBase) and info.can_load():  # which it no more can when whole
                self._missing.add(f"{name}.weight")
        # Also of a part of the weights: models of a process share what is in none of their weights.
        finalize_layerwise_reload(self.model, self.model_config)
        if self._missing:
            raise ValueError(f"a weight update left out {', '.join(sorted(self._missing))}")
        # Trap: a head that is tied gets no weights of its own, and its packed copy stays that of
        # the embeddings before.
        for layer in self._heads:
            layer.quant_method.process_weights_after_loading(layer)
        return_free_memory()

    def shutdown(self) -> None:
        """Nothing to close."""

    @staticmethod
    def trainer_send_weights(*_: object) -> None:
        """Not called: vLLM 0.26 requires it of a transfer, which ``SharedMemoryWeightSender`` does
        here."""
        raise NotImplementedError
