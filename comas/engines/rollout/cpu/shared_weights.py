"""A policy's weights in host memory that one rank writes and all its rollout engines read."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, Protocol

import torch

WeightMetadata = tuple[str, torch.dtype, tuple[int, ...]]
"""Hugging Face name, dtype and whole shape of a parameter."""

Chunk = Sequence[tuple[str, torch.Tensor]]
"""Consecutive parameters by name."""

_ALIGNMENT = 64
"""Bytes: a cache line, and a multiple of the size of every element."""


class UpdateCalls(Protocol):
    """The calls of a weight update, each to all rollout engines of a policy. They return when all
    that was asked for is done."""

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None: ...
    def start_weight_update(self) -> None: ...
    def update_weights(self, update_info: dict[str, Any]) -> None: ...
    def finish_weight_update(self) -> None: ...


class SharedMemoryWeightSender:
    """Sends weights by writing them once into memory that the engines of a node have mapped.

    Every rank of the trainer creates one, and calls ``send_weights`` for a whole update; the first
    of each node writes.

    Args:
        chunks: all parameters by their Hugging Face names, anew at each call. Gathering is
            collective, so every rank iterates, and to the end.
        metadata: name, dtype and shape of the same parameters, in any order.
    """

    def __init__(
        self,
        *,
        engines: UpdateCalls,
        chunks: Callable[[], Iterable[Chunk]],
        metadata: Sequence[WeightMetadata],
        is_first: bool,
    ) -> None:
        self._engines = engines
        self._chunks = chunks
        self._is_first = is_first
        if is_first:
            with _anonymous_file(num_bytes(metadata)) as path:
                self._shared = mapped_weights(path, metadata)
                engines.init_weight_transfer_engine({"path": path, "metadata": list(metadata)})

    @torch.no_grad()
    def send_weights(self) -> None:
        """Make the engines serve the present weights; every rank calls it."""
        if not self._is_first:
            deque(self._chunks(), maxlen=0)
            return
        self._engines.start_weight_update()
        for chunk in self._chunks():
            for name, values in chunk:
                self._shared[name].copy_(values)
            self._engines.update_weights({"names": [name for name, _ in chunk]})
        self._engines.finish_weight_update()


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
