"""The engine's end of a weight update through shared memory, into a model on the CPU."""

from dataclasses import dataclass
from typing import Any

import torch
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
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.model_executor.model_loader.reload.meta import materialize_meta_tensor
from vllm.model_executor.model_loader.reload.sanitize import restore_layer_refs

from comas.engines.rollout.cpu.shared_weights import WeightMetadata, mapped_weights


@dataclass
class SharedMemoryInitInfo(WeightTransferInitInfo):
    """The shared memory, and the parameters that it holds."""

    path: str
    metadata: list[WeightMetadata]


@dataclass
class SharedMemoryUpdateInfo(WeightTransferUpdateInfo):
    """The Hugging Face names of parameters that have been written."""

    names: list[str]


class PackedWeight:
    """The weight of a linear layer, of which vLLM keeps only a copy packed for the CPU's kernels.

    vLLM's own loader, which knows fused layers, fills it. With its last element it is packed, and
    its memory is freed.
    """

    def __init__(self, layer: LinearBase) -> None:
        parameters, _ = get_layerwise_info(layer).restore_metadata
        self._layer = layer
        self._meta = restore_layer_refs(parameters["weight"], layer)
        self._weight = materialize_meta_tensor(self._meta)
        self._weight.data = torch.empty(0)
        self._load_shard = self._weight.weight_loader
        self._weight.weight_loader = self._load
        self.num_missing = 0
        """Elements, of all shards of the layer, that the present update still has to load."""

    def expect(self) -> None:
        """Make the layer accept weights in checkpoint format."""
        self._layer.weight = self._weight
        self.num_missing = self._layer.output_size * self._layer.input_size

    def _load(self, weight: nn.Parameter, shard: torch.Tensor, *shard_id: Any) -> None:
        if weight.numel() == 0:
            weight.data = torch.empty(self._meta.shape, dtype=self._meta.dtype)
        self._load_shard(weight, shard, *shard_id)
        self.num_missing -= shard.numel()
        if self.num_missing == 0:
            pack(self._layer)
            self._weight.data = torch.empty(0)


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


@torch.no_grad()
def pack(layer: nn.Module) -> None:
    """Have vLLM pack a layer's present weight for its CPU kernels."""
    layer.cpu_linear = None  # the former copy goes first: its memory is taken again at once
    layer.quant_method.process_weights_after_loading(layer)


class SharedMemoryWeightTransferEngine(
    WeightTransferEngine[SharedMemoryInitInfo, SharedMemoryUpdateInfo]
):
    """Loads weights into the running model (vLLM's worker-side interface).

    vLLM's layerwise reload only logs a weight that was left out, and goes on with the one before.
    """

    init_info_cls = SharedMemoryInitInfo
    update_info_cls = SharedMemoryUpdateInfo

    def init_transfer_engine(self, init_info: SharedMemoryInitInfo) -> None:
        """Map the weights. Raises ValueError when the model has layers that cannot be updated."""
        check_layers(self.model)
        self._shared = mapped_weights(init_info.path, init_info.metadata)
        self._parameters = dict(self.model.named_parameters())
        layers = dict(self.model.named_modules())
        self._packed = {
            f"{name}.weight": PackedWeight(layer)
            for name, layer in layers.items()
            if isinstance(layer, LinearBase) and layer.weight.numel() == 0
        }
        self._heads = [layer for layer in layers.values() if isinstance(layer, ParallelLMHead)]
        if not self._heads:  # in vLLM 0.26 some tied heads are the embeddings themselves
            embeddings = VocabParallelEmbedding
            self._heads = [layer for layer in layers.values() if isinstance(layer, embeddings)]

    def start_weight_update(self) -> None:
        """Make the layers accept weights again."""
        self._missing = set(self._parameters)
        for weight in self._packed.values():
            weight.expect()

    def receive_weights(self, update_info: SharedMemoryUpdateInfo) -> None:
        """Hand a chunk to the model's own loader, which knows fused and tied parameters."""
        loaded = self.model.load_weights((name, self._shared[name]) for name in update_info.names)
        self._missing -= loaded
        # Trap: a head that is tied gets no weights of its own, and its packed copy stays that of
        # the embeddings before unless it is packed with them.
        for head in self._heads:
            if any(head.weight is self._parameters[name] for name in loaded):
                pack(head)

    def finish_weight_update(self) -> None:
        """Raise ValueError when a parameter got no values, or only a part of them."""
        self._missing |= {name for name, weight in self._packed.items() if weight.num_missing}
        if self._missing:
            raise ValueError(f"a weight update left out {', '.join(sorted(self._missing))}")

    def shutdown(self) -> None:
        """Nothing to close."""

    @staticmethod
    def trainer_send_weights(*_: object) -> None:
        """Not called: vLLM 0.26 requires it of a transfer, which ``SharedMemoryWeightSender`` does
        here."""
        raise NotImplementedError
