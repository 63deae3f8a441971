"""A policy's whole weights, to send and to save."""

from collections.abc import Iterator
from pathlib import Path

import deepspeed
import torch
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from comas.utils.model_folder import describe_as

NamedTensor = tuple[str, torch.Tensor]
"""A weight under its Hugging Face name."""


def named_weights(model: PreTrainedModel) -> Iterator[NamedTensor]:
    """Yield every parameter whole (tied ones once), then the persistent buffers.

    ZeRO-3 gathers each, so all ranks must iterate to the end. A yielded tensor stays valid, but
    below ZeRO-3 the next update changes it.
    """
    for name, parameter in model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter]):
            is_gathered = hasattr(parameter, "ds_id")
            yield name, parameter.detach().clone() if is_gathered else parameter.detach()
    kept = model.state_dict().keys()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name in kept)


def weights_as_saved(model: PreTrainedModel) -> Iterator[NamedTensor]:
    """Yield the weights of ``named_weights`` with the names and shapes of a checkpoint, which
    engines expect: transformers keeps all experts of a layer in one tensor."""
    for name, weight in named_weights(model):
        yield from revert_weight_conversion(model, {name: weight}).items()


def save_model(model: PreTrainedModel, folder: Path, *, base: Path, rank: int) -> None:
    """Write the model in Hugging Face format, with the description of ``base`` (collective)."""
    weights = {name: weight.cpu() for name, weight in named_weights(model) if rank == 0}
    if rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(folder, state_dict=weights)
        describe_as(base, folder)
