"""The trainer's end of a weight update: one way to send, whatever the transport."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
import torch
from vllm.distributed.weight_transfer import (
    TrainerWeightTransferEngine,
    VLLMWeightSyncClient,
    WeightSource,
    WeightTransferTrainerFactory,
)
from vllm.distributed.weight_transfer.base import ParamMeta, TrainerInitInfo
from vllm.distributed.weight_transfer.clients import RayVLLMWeightSyncClient
from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
from vllm.distributed.weight_transfer.packed_tensor import DEFAULT_PACKED_BUFFER_SIZE_BYTES
from vllm.utils.network_utils import get_open_port

from comas.engines.rollout.vllm_options import WeightTransfer

__all__ = ["PolicyWeights", "RayVLLMWeightSyncClient", "create_weight_sender"]

LOOPBACK = "127.0.0.1"
"""A policy's ranks and engines are on one node, so nothing needs to listen beyond it."""

NamedTensor = tuple[str, torch.Tensor]


class PolicyWeights(WeightSource):
    """A policy's weights as vLLM's senders take them.

    Args:
        named_weights: yields (Hugging Face name, full tensor), collective over the ranks.
        weight_metadata: (name, dtype, shape) of the same parameters in the same order.
    """

    def __init__(
        self,
        named_weights: Callable[[], Iterator[NamedTensor]],
        weight_metadata: Callable[[], Sequence[tuple[str, torch.dtype, tuple[int, ...]]]],
    ) -> None:
        self._named_weights = named_weights
        self._metadata = [ParamMeta(*meta) for meta in weight_metadata()]

    def metadata(self) -> list[ParamMeta]:
        return self._metadata

    def __iter__(self) -> Iterator[NamedTensor]:
        return self._named_weights()


def create_weight_sender(
    backend: WeightTransfer,
    *,
    client: VLLMWeightSyncClient,
    source: WeightSource,
    rank: int,
    num_engines: int,
) -> TrainerWeightTransferEngine:
    """Connect a trainer's ranks to the rollout engines that serve its weights.

    Every rank of the trainer creates one and calls ``send_weights()`` on it, which runs a whole
    update. All ranks iterate the source, because gathering is collective; only rank 0 talks to
    the engines, through ``client``.

    ``source`` yields ``(Hugging Face name, full tensor)`` anew at each iteration, and its
    ``metadata()`` gives name, dtype and shape of the same parameters in the same order without
    gathering. A yielded tensor must stay valid and unchanged until ``send_weights`` returns.
    """
    init_info = trainer_init_info(backend, source=source, rank=rank, num_engines=num_engines)
    return WeightTransferTrainerFactory.trainer_init(init_info, client=client, source=source)


def trainer_init_info(
    backend: WeightTransfer, *, source: WeightSource, rank: int, num_engines: int
) -> TrainerInitInfo:
    """What vLLM needs to know to open a trainer's end of ``backend``."""
    if backend == "object_store":
        return ObjectStoreTrainerInitInfo(rank=rank)
    # vLLM refuses a tensor larger than the buffer (the embeddings of a 7B model are).
    largest = max(prod(meta.shape) * meta.dtype.itemsize for meta in source.metadata())
    buffer_bytes = max(DEFAULT_PACKED_BUFFER_SIZE_BYTES, largest)
    if backend == "ipc":
        return IPCTrainerInitInfo(rank=rank, packed=True, packed_buffer_size_bytes=buffer_bytes)
    return NCCLTrainerInitInfo(
        rank=rank,
        master_address=LOOPBACK,
        master_port=get_open_port(),
        world_size=1 + num_engines,
        packed_buffer_size_bytes=buffer_bytes,
    )


@dataclass
class ObjectStoreTrainerInitInfo(TrainerInitInfo):
    """How weights are sent through host memory."""

    backend: ClassVar[str] = "object_store"
    chunk_bytes: int = 16 << 20


class ObjectStoreTrainerWeightTransferEngine(
    TrainerWeightTransferEngine[ObjectStoreTrainerInitInfo]
):
    """Sends weights as arguments of the client's calls, in chunks of bounded size.

    float32 travels as NumPy arrays, which Ray hands over through shared memory without a copy.
    """

    init_info_cls = ObjectStoreTrainerInitInfo

    def __init__(self, *, chunk_bytes: int, **base_arguments: Any) -> None:
        super().__init__(**base_arguments)
        self._chunk_bytes = chunk_bytes

    @classmethod
    def trainer_init(
        cls,
        init_info: ObjectStoreTrainerInitInfo,
        *,
        client: VLLMWeightSyncClient,
        source: WeightSource | None = None,
    ) -> Self:
        """Greet the engines from rank 0; see ``create_weight_sender``."""
        if init_info.is_sender:
            client.init_weight_transfer_engine({})
        return cls(
            client=client,
            source=source,
            is_sender=init_info.is_sender,
            chunk_bytes=init_info.chunk_bytes,
        )

    def send_weights(self) -> None:
        """Run one whole update; every rank calls it."""
        if not self.is_sender:
            for _ in self.source:  # its share of the gathering
                pass
            return
        self.client.start_weight_update()
        for chunk in chunked(self.source, max_bytes=self._chunk_bytes):
            names = [name for name, _ in chunk]
            tensors = [_in_host_memory(tensor) for _, tensor in chunk]
            self.client.update_weights({"names": names, "tensors": tensors})
        self.client.finish_weight_update()


WeightTransferTrainerFactory.register_engine("object_store", ObjectStoreTrainerWeightTransferEngine)


def chunked(weights: Iterable[NamedTensor], *, max_bytes: int) -> Iterator[list[NamedTensor]]:
    """Group consecutive tensors into chunks of at most ``max_bytes``; a larger one stands alone.

    Example: sizes 3, 4, 9, 1 with ``max_bytes=8`` give chunks of [3, 4], [9], [1].
    """
    chunk: list[NamedTensor] = []
    num_bytes = 0
    for name, tensor in weights:
        if chunk and num_bytes + tensor.nbytes > max_bytes:
            yield chunk
            chunk, num_bytes = [], 0
        chunk.append((name, tensor))
        num_bytes += tensor.nbytes
    if chunk:
        yield chunk


def _in_host_memory(tensor: torch.Tensor) -> np.ndarray | torch.Tensor:
    tensor = tensor.detach().cpu()
    return tensor if tensor.dtype == torch.bfloat16 else tensor.numpy()  # NumPy has no bfloat16
