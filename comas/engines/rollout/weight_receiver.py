"""The engine's end of a weight update that comes as arrays in host memory."""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from vllm.distributed.weight_transfer import WeightTransferEngine
from vllm.distributed.weight_transfer.base import (
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

# Arrays out of Ray's object store are read-only views; loading only reads them.
warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)


@dataclass
class ObjectStoreInitInfo(WeightTransferInitInfo):
    """Empty: sender and receiver have nothing to agree on."""


@dataclass
class ObjectStoreUpdateInfo(WeightTransferUpdateInfo):
    """One chunk: Hugging Face parameter names, each with its full tensor."""

    names: list[str]
    tensors: list[np.ndarray | torch.Tensor]


class ObjectStoreWeightTransferEngine(
    WeightTransferEngine[ObjectStoreInitInfo, ObjectStoreUpdateInfo]
):
    """Loads chunks of named CPU tensors into the running model (vLLM's worker-side interface)."""

    init_info_cls = ObjectStoreInitInfo
    update_info_cls = ObjectStoreUpdateInfo

    def init_transfer_engine(self, init_info: ObjectStoreInitInfo) -> None:
        """Nothing to open."""

    def start_weight_update(self) -> None:
        """Make the layers accept weights in checkpoint format again."""
        self._missing = {name for name, _ in self.model.named_parameters()}
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: ObjectStoreUpdateInfo) -> None:
        """Hand the chunk to the model's own loader, which knows fused and tied parameters."""
        tensors = (torch.as_tensor(tensor) for tensor in update_info.tensors)
        self._missing -= self.model.load_weights(zip(update_info.names, tensors, strict=True))

    @torch.no_grad()
    def finish_weight_update(self) -> None:
        """Put the new weights to use. Raises ValueError when a parameter got none."""
        if self._missing:
            raise ValueError(f"a weight update left out {', '.join(sorted(self._missing))}")
        finalize_layerwise_reload(self.model, self.model_config)
        for module in self.model.modules():
            # Trap: a tied head gets no weights of its own, so the reload passes it by, and it
            # keeps multiplying by the packed copy of the embeddings of before.
            if isinstance(module, ParallelLMHead) and hasattr(module, "cpu_linear"):
                module.quant_method.process_weights_after_loading(module)

    def shutdown(self) -> None:
        """Nothing to close."""
