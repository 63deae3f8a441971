"""A policy's weights in host memory that its ranks write and all its rollout engines read."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, Protocol

import torch
from torch import distributed

WeightMetadata = tuple[str, torch.dtype, tuple[int, ...]]
"""Hugging Face name, dtype and whole shape of a parameter."""

Chunk = Sequence[tuple[str, int, torch.Tensor]]
"""A rank's part of consecutive parameters: name, index of its first element, values."""

_ALIGNMENT = 64
"""Bytes: a cache line, and a multiple of the size of every element."""


class UpdateCalls(Protocol):
    """The calls of a weight update, each to all rollout engines of a policy.

    ``update_weights`` may return before the engines have loaded the chunk; the others, when all
    that was asked for is done.
    """

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None: ...
    def start_weight_update(self) -> None: ...
    def update_weights(self, update_info: dict[str, Any]) -> None: ...
    def finish_weight_update(self) -> None: ...


class SharedMemoryWeightSender:
    """Sends weights by writing them once into memory that the engines have mapped.

    Every rank of the trainer creates one, and calls ``send_weights`` for a whole update. While
    the engines load a chunk, the next one is written. Where each rank holds a part of every
    parameter, each writes its own, and nothing is gathered. Over several nodes the first rank of
    each writes for the engines there.

    Args:
        chunks: what this rank holds of all parameters, anew at each call, in the same chunks on
            all ranks.
        metadata: name, dtype and shape of the same parameters, in any order.
        is_sharded: whether the ranks hold parts, which only together are the weights; else rank 0
            has them whole.
    """

    def __init__(
        self,
        *,
        engines: UpdateCalls,
        chunks: Callable[[], Iterable[Chunk]],
        metadata: Sequence[WeightMetadata],
        rank: int,
        is_sharded: bool,
    ) -> None:
        """``rank`` counts those of this node."""
        self._engines = engines
        self._chunks = chunks
        self._is_first = rank == 0
        self._is_sharded = is_sharded
        self._shared: dict[str, torch.Tensor] = {}
        if self._is_first:
            with _anonymous_file(num_bytes(metadata)) as path:
                self._share(path, metadata)
                engines.init_weight_transfer_engine({"path": path, "metadata": list(metadata)})
        elif is_sharded:
            self._share(None, metadata)

    def _share(self, path: str | None, metadata: Sequence[WeightMetadata]) -> None:
        """Map the memory that rank 0 has made; it alone is given its ``path``."""
        paths = [path]
        if self._is_sharded:
            distributed.broadcast_object_list(paths, src=0)
        assert paths[0] is not None
        views = mapped_weights(paths[0], metadata)
        self._shared = {name: view.view(-1) for name, view in views.items()}
        self._meet()  # before rank 0 takes the path away

    @torch.no_grad()
    def send_weights(self) -> None:
        """Make the engines serve the present weights; every rank calls it."""
        if self._is_first:
            self._engines.start_weight_update()
        # To the end also where nothing is written: gathering is collective.
        for chunk in self._chunks():
            for name, start, values in chunk if self._shared else ():
                self._shared[name][start : start + len(values)].copy_(values)
            self._meet()
            if self._is_first:
                self._engines.update_weights({"names": [name for name, *_ in chunk]})
        if self._is_first:
            self._engines.finish_weight_update()

    def _meet(self) -> None:
        """Wait until all ranks that write are here."""
        if self._is_sharded:
            distributed.barrier()


def num_bytes(metadata: Iterable[WeightMetadata]) -> int:
    """Bytes that ``mapped_weights`` maps."""
    return sum(_padded_bytes(dtype, shape) for _, dtype, shape in metadata)


def mapped_weights(path: str, metadata: Sequence[WeightMetadata]) -> dict[str, torch.Tensor]:
    """The parameters as views of the file at ``path``, which every process sees change."""
    memory = torch.from_file(path, shared=True, size=num_bytes(metadata), dtype=torch.uint8)
    views = {}
    offset = 0
    for name, dtype, shape in metadata:
        size = prod(shape) * dtype.itemsize
        views[name] = memory[offset : offset + size].view(dtype).view(shape)
        offset += _padded_bytes(dtype, shape)
    return views


def _padded_bytes(dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    return -(-prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT


@contextmanager
def _anonymous_file(size: int) -> Iterator[str]:
    """A path under which processes of this user, and only they, can map ``size`` bytes.

    The memory lives as long as a process maps it, and leaves no file behind when all are killed.
    """
    descriptor = os.memfd_create("weights")
    try:
        os.fchmod(descriptor, 0o600)
        os.posix_fallocate(descriptor, 0, size)  # no memory is an error here, not a crash later
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)
