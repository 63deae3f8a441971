"""The trainer's side of weight updates on GPUs, by vLLM's own senders."""

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Literal

import torch
import vllm
from vllm.distributed.weight_transfer import (
    VLLMWeightSyncClient,
    WeightSource,
    WeightTransferTrainerFactory,
    ipc_engine,
    nccl_engine,
)
from vllm.distributed.weight_transfer.base import ParamMeta, TrainerInitInfo
from vllm.distributed.weight_transfer.packed_tensor import DEFAULT_PACKED_BUFFER_SIZE_BYTES
from vllm.utils.network_utils import get_open_port

from comas.engines.allocator import fixed_segments


class PolicyWeights(WeightSource):
    """A policy's weights for vLLM's senders: (Hugging Face name, full tensor). Its creation, and
    each iteration, gathers them on all ranks together."""

    def __init__(self, named_weights: Callable[[], Iterator[tuple[str, torch.Tensor]]]) -> None:
        self._named_weights = named_weights
        self._metadata = [
            ParamMeta(name, weight.dtype, tuple(weight.shape)) for name, weight in named_weights()
        ]

    def metadata(self) -> list[ParamMeta]:
        return self._metadata

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self._named_weights()


def create_weight_sender(
    backend: Literal["ipc", "nccl"],
    *,
    client: VLLMWeightSyncClient,
    source: WeightSource,
    rank: int,
    num_workers: int,
) -> Callable[[], None]:
    """Connect a trainer's ranks to its rollout engines; return a function that runs a whole update
    and is collective over the ranks.

    Rank 0 calls the engines through ``client``. ``num_workers`` counts the GPUs of all engines:
    each receives all weights and keeps its shard. Tensors yielded by ``source`` must stay unchanged
    until the update is over.
    """
    if hasattr(ipc_engine, "IPCTrainerInitInfo"):
        init_info = trainer_init_info(backend, source=source, rank=rank, num_workers=num_workers)
        sender = WeightTransferTrainerFactory.trainer_init(init_info, client=client, source=source)
        send = sender.send_weights
    elif backend == "ipc":
        if rank == 0:
            client.init_weight_transfer_engine({})
        send = partial(_send_by_vllm_026, client, source, is_sender=rank == 0)
    else:
        raise ValueError(
            f"cluster.placement=disaggregated: vllm {vllm.__version__} sends weights between "
            "GPUs in another way; install the version of requirements.txt, or set "
            "cluster.placement to colocated"
        )
    # By IPC, the engine opens GPU memory of this process.
    return fixed_segments()(send) if backend == "ipc" else send


def _send_by_vllm_026(
    client: VLLMWeightSyncClient, source: WeightSource, *, is_sender: bool
) -> None:
    """Run a whole update with vLLM 0.26, which has no engine for the trainer."""
    if is_sender:
        client.start_weight_update()
    ipc_engine.IPCWeightTransferEngine.trainer_send_weights(  # type: ignore[attr-defined]
        iter(source),
        {
            "send_mode": lambda chunk: client.update_weights(vars(chunk)),
            "packed": True,
            "packed_buffer_size_bytes": _buffer_bytes(source),
        },
    )
    if is_sender:
        client.finish_weight_update()


def trainer_init_info(
    backend: Literal["ipc", "nccl"], *, source: WeightSource, rank: int, num_workers: int
) -> TrainerInitInfo:
    """Return vLLM's arguments for the trainer's side of ``backend``."""
    buffer_bytes = _buffer_bytes(source)
    if backend == "ipc":
        return ipc_engine.IPCTrainerInitInfo(
            rank=rank, packed=True, packed_buffer_size_bytes=buffer_bytes
        )
    return nccl_engine.NCCLTrainerInitInfo(
        rank=rank,
        master_address="127.0.0.1",  # a policy's ranks and engines are on one node
        master_port=get_open_port(),
        world_size=1 + num_workers,
        packed_buffer_size_bytes=buffer_bytes,
    )


def _buffer_bytes(source: WeightSource) -> int:
    # vLLM refuses tensors larger than the buffer, such as the embeddings of a 7B model.
    largest = max(prod(meta.shape) * meta.dtype.itemsize for meta in source.metadata())
    return max(DEFAULT_PACKED_BUFFER_SIZE_BYTES, largest)
