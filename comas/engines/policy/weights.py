"""A policy's weights, whole: to send and to save."""

from collections.abc import Iterator
from pathlib import Path

import deepspeed
import torch
from transformers import PreTrainedModel

from comas.utils.model_description import describe_as

NamedTensor = tuple[str, torch.Tensor]
"""A weight under its Hugging Face name."""


def named_weights(model: PreTrainedModel) -> Iterator[NamedTensor]:
    """Yield every parameter whole, tied ones once.

    Under ZeRO-3 each is gathered, so all ranks must iterate, and to the end. A yielded tensor stays
    valid, but is changed by the next update below ZeRO-3.
    """
    for name, parameter in model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter]):
            is_gathered = hasattr(parameter, "ds_id")
            yield name, parameter.detach().clone() if is_gathered else parameter.detach()


def weight_metadata(model: PreTrainedModel) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
    """Return name, dtype and shape of what ``named_weights`` yields, in its order, without
    gathering anything."""
    return [
        (name, parameter.dtype, tuple(getattr(parameter, "ds_shape", parameter.shape)))
        for name, parameter in model.named_parameters()
    ]


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
