"""A policy's weights, whole: to send and to save."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import deepspeed
import torch
from transformers import PreTrainedModel

from comas.utils.model_description import describe_as

CHUNK_BYTES = 64 << 20
"""Of weights that are gathered together: large enough to outweigh the calls."""

NamedTensor = tuple[str, torch.Tensor]
"""A weight under its Hugging Face name."""


def named_weights(model: PreTrainedModel) -> Iterator[NamedTensor]:
    """Yield every parameter whole, tied ones once.

    Under ZeRO-3 they are gathered chunk by chunk, so all ranks must iterate, and to the end. A
    yielded tensor stays valid, but is changed by the next update below ZeRO-3.
    """
    is_sharded = any(hasattr(parameter, "ds_id") for parameter in model.parameters())
    for chunk in chunked(model.named_parameters(), max_bytes=CHUNK_BYTES):
        with deepspeed.zero.GatheredParameters([parameter for _, parameter in chunk]):
            for name, parameter in chunk:
                yield name, parameter.detach().clone() if is_sharded else parameter.detach()


def chunked(
    parameters: Iterable[tuple[str, torch.nn.Parameter]], *, max_bytes: int
) -> Iterator[list[tuple[str, torch.nn.Parameter]]]:
    """Group consecutive parameters of at most ``max_bytes``; a larger one stands alone.

    Example: sizes of 3, 4, 9 and 1 bytes with ``max_bytes=8`` give chunks of [3, 4], [9], [1].
    """
    chunk: list[tuple[str, torch.nn.Parameter]] = []
    num_bytes = 0
    for name, parameter in parameters:
        size = _whole_shape(parameter).numel() * parameter.element_size()
        if chunk and num_bytes + size > max_bytes:
            yield chunk
            chunk, num_bytes = [], 0
        chunk.append((name, parameter))
        num_bytes += size
    if chunk:
        yield chunk


def weight_metadata(model: PreTrainedModel) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
    """Return name, dtype and shape of what ``named_weights`` yields, in its order, without
    gathering anything."""
    return [
        (name, parameter.dtype, tuple(_whole_shape(parameter)))
        for name, parameter in model.named_parameters()
    ]


def _whole_shape(parameter: torch.nn.Parameter) -> torch.Size:
    return getattr(parameter, "ds_shape", parameter.shape)


def save_model(model: PreTrainedModel, folder: Path, *, base: Path, rank: int) -> None:
    """Write the model in Hugging Face format, described as ``base`` is (collective).

    Rank 0 holds the whole model in host memory while it writes.
    """
    weights = {}
    for name, weight in named_weights(model):
        if rank == 0:
            weights[name] = weight.cpu()
    if rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(folder, state_dict=weights)
        describe_as(base, folder)
