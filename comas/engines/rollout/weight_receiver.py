"""The engine's end of a weight update through shared memory, into a model on the CPU."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
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

from comas.engines.rollout.shared_weights import WeightMetadata, mapped_weights

SMALL_BYTES = 1 << 20
"""A weight below this is packed in less time than another thread takes to begin."""


@dataclass
class SharedMemoryInitInfo(WeightTransferInitInfo):
    """Where the weights will be, and what they are."""

    path: str
    metadata: list[WeightMetadata]


@dataclass
class SharedMemoryUpdateInfo(WeightTransferUpdateInfo):
    """One chunk: the Hugging Face names of parameters that have been written."""

    names: list[str]


class PackedWeight:
    """The weight of a linear layer, of which vLLM keeps only a copy packed for the CPU's kernels.

    It is loaded by vLLM's own loader, which knows fused layers, and takes memory of its own only
    from there until it is packed again.
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
        """Elements that the present update still has to load."""

    @property
    def num_bytes(self) -> int:
        """Of the whole weight, unpacked."""
        return self._meta.nbytes

    @property
    def is_whole(self) -> bool:
        """Whether it was loaded, and waits to be packed."""
        return self.num_missing == 0 and self._weight.numel() > 0

    def expect(self) -> None:
        """Make the layer accept weights in checkpoint format."""
        self._layer.weight = self._weight
        self.num_missing = self._meta.numel()

    def pack(self) -> None:
        """Put the loaded weight to use."""
        pack(self._layer)
        self._weight.data = torch.empty(0)

    def _load(self, weight: nn.Parameter, shard: torch.Tensor, *shard_id: Any) -> None:
        if weight.numel() == 0:
            weight.data = torch.empty(self._meta.shape, dtype=self._meta.dtype)
        self._load_shard(weight, shard, *shard_id)
        self.num_missing -= shard.numel()


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

    vLLM's layerwise reload would do, but at twice the cost: it copies embeddings twice and packs
    them for a multiplication that nobody makes. Packing is what takes longest, four times as
    long as a copy of the same bytes: idle cores do it while the next chunk is loaded.
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
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="pack")
        self._packing: list[Future[None]] = []
        self._packing_heads: list[Future[None]] = []

    def start_weight_update(self) -> None:
        """Make the layers accept weights again."""
        self._missing = set(self._parameters)
        for weight in self._packed.values():
            weight.expect()

    def receive_weights(self, update_info: SharedMemoryUpdateInfo) -> None:
        """Hand a chunk to the model's own loader, which knows fused and tied parameters."""
        loaded = self.model.load_weights((name, self._shared[name]) for name in update_info.names)
        self._missing -= loaded
        _wait(self._packing)  # of the chunk before: two at most take memory unpacked
        for weight in self._packed.values():
            if weight.is_whole:
                self._pack(weight.pack, weight.num_bytes, self._packing)
        # Trap: a head that is tied gets no weights of its own, and its packed copy stays that of
        # the embeddings before unless it is packed with them.
        for head in self._heads:
            if any(head.weight is self._parameters[name] for name in loaded):
                self._pack(partial(pack, head), head.weight.nbytes, self._packing_heads)

    def finish_weight_update(self) -> None:
        """Put the new weights to use. Raises ValueError when a parameter got none or a part."""
        _wait(self._packing)
        _wait(self._packing_heads)
        self._missing |= {name for name, weight in self._packed.items() if weight.num_missing}
        if self._missing:
            raise ValueError(f"a weight update left out {', '.join(sorted(self._missing))}")

    def _pack(
        self, function: Callable[[], None], num_bytes: int, packing: list[Future[None]]
    ) -> None:
        """Call ``function`` on an idle core, or here when that takes longer than it saves."""
        if num_bytes < SMALL_BYTES:
            function()
        else:
            packing.append(self._pool.submit(function))

    def shutdown(self) -> None:
        """Nothing to close."""


def _wait(packing: list[Future[None]]) -> None:
    for future in packing:
        future.result()
    packing.clear()
