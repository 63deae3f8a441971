"""A policy's weights in shared memory, written by one rank and read by its rollout engines."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from vllm.distributed.weight_transfer import VLLMWeightSyncClient

WeightMetadata = tuple[str, torch.dtype, tuple[int, ...]]
"""Hugging Face name, dtype and whole shape of a parameter."""

_ALIGNMENT = 64
"""Bytes of a cache line, a multiple of every element size."""


class SharedMemoryWeightSender:
    """Sends weights by writing them once into memory that the engines have mapped.

    Every rank has one and calls ``send_weights``; the first rank writes, and calls the engines
    through ``client``. ``named_weights`` yields (Hugging Face name, full tensor), collectively;
    ``metadata`` describes the same parameters.
    """

    def __init__(
        self,
        *,
        client: "VLLMWeightSyncClient",
        named_weights: Callable[[], Iterable[tuple[str, torch.Tensor]]],
        metadata: Sequence[WeightMetadata],
        is_first: bool,
    ) -> None:
        self._client = client
        self._named_weights = named_weights
        self._is_first = is_first
        if is_first:
            with _anonymous_file(num_bytes(metadata)) as path:
                self._shared = mapped_weights(path, metadata)
                client.init_weight_transfer_engine({"path": path, "metadata": list(metadata)})

    @torch.no_grad()
    def send_weights(self) -> None:
        """Make the engines serve the current weights (collective)."""
        names = []
        for name, values in self._named_weights():
            if self._is_first:
                self._shared[name].copy_(values)
                names.append(name)
        if self._is_first:
            self._client.start_weight_update()
            self._client.update_weights({"names": names})
            self._client.finish_weight_update()


def num_bytes(metadata: Iterable[WeightMetadata]) -> int:
    """Return the bytes that ``mapped_weights`` maps."""
    return sum(_padded_bytes(dtype, shape) for _, dtype, shape in metadata)


def mapped_weights(path: str, metadata: Sequence[WeightMetadata]) -> dict[str, torch.Tensor]:
    """Return the parameters as views of the shared file at ``path``."""
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
    """Yield a path at which processes of this user only can map ``size`` bytes, which are freed
    when the last mapping ends."""
    descriptor = os.memfd_create("weights")
    try:
        os.fchmod(descriptor, 0o600)
        os.posix_fallocate(descriptor, 0, size)  # fails here if memory is short, not later
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)
