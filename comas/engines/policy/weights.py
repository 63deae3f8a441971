"""A policy's weights: whole, to check, to save and to send to GPUs; by shards, to send on a CPU."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import deepspeed
import torch
from safetensors import safe_open
from transformers import PreTrainedModel

from comas.utils.model_description import describe_as

SHAPES = "shapes.json"
"""The file of a policy's checkpoint that says which weights it is of."""
CHUNK_BYTES = 64 << 20
"""Large enough to outweigh the calls that each chunk takes, small enough that one is written while
the engines load another."""


class Shard(NamedTuple):
    """What one rank holds of a parameter."""

    name: str
    """The parameter's Hugging Face name."""
    start: int
    """Elements of the whole parameter, flat, before the first of ``values``."""
    values: torch.Tensor
    """1-D; empty where the rank holds none."""


class WeightMetadata(NamedTuple):
    """One parameter as ``named_weights`` will yield it."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


def weight_shards(
    model: PreTrainedModel, *, zero_stage: int, rank: int, max_bytes: int = CHUNK_BYTES
) -> Iterator[list[Shard]]:
    """Yield what this rank holds of every parameter, in chunks, without gathering anything.

    Under ZeRO-3 the shards of all ranks are the whole parameter; below, each rank has it whole.
    They are views, which the next update changes.
    """
    for chunk in chunked(model.named_parameters(), max_bytes=max_bytes):
        yield [_shard(name, parameter, zero_stage, rank) for name, parameter in chunk]


def whole_weights(model: PreTrainedModel, *, zero_stage: int) -> Iterator[list[Shard]]:
    """Yield every parameter whole, in the chunks of ``weight_shards``.

    Under ZeRO-3 a chunk is gathered while it is looked at, so all ranks must iterate, and to the
    end.
    """
    for chunk in chunked(model.named_parameters()):
        parameters = [parameter for _, parameter in chunk]
        with deepspeed.zero.GatheredParameters(parameters, enabled=zero_stage == 3):
            yield [Shard(name, 0, parameter.detach().flatten()) for name, parameter in chunk]


def _shard(name: str, parameter: torch.nn.Parameter, zero_stage: int, rank: int) -> Shard:
    if zero_stage < 3:
        return Shard(name, 0, parameter.detach().flatten())
    partition = parameter.ds_tensor.detach()  # equally long on all ranks: the last is padded
    start = min(rank * len(partition), parameter.ds_numel)
    return Shard(name, start, partition[: parameter.ds_numel - start])


def chunked(
    parameters: Iterable[tuple[str, torch.nn.Parameter]], *, max_bytes: int = CHUNK_BYTES
) -> Iterator[list[tuple[str, torch.nn.Parameter]]]:
    """Group consecutive parameters by their bytes when whole; one of more than ``max_bytes`` stands
    alone.

    Example: sizes 3, 4, 9, 1 with ``max_bytes=8`` give chunks of [3, 4], [9], [1].
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


def named_weights(model: PreTrainedModel, *, zero_stage: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every parameter whole, under its Hugging Face name; tied ones once.

    Under ZeRO-3 they are gathered chunk by chunk, so all ranks must iterate, and to the end. A
    yielded tensor stays valid, but is changed by the next update below ZeRO-3.
    """
    shapes = {name: _whole_shape(parameter) for name, parameter in model.named_parameters()}
    for chunk in whole_weights(model, zero_stage=zero_stage):
        for name, _, values in chunk:
            yield name, (values.clone() if zero_stage == 3 else values).view(shapes[name])


def weight_metadata(model: PreTrainedModel) -> list[WeightMetadata]:
    """Describe what ``named_weights`` yields, in its order, without gathering anything."""
    return [
        WeightMetadata(name, parameter.dtype, tuple(_whole_shape(parameter)))
        for name, parameter in model.named_parameters()
    ]


def _whole_shape(parameter: torch.nn.Parameter) -> torch.Size:
    return getattr(parameter, "ds_shape", parameter.shape)


def note_shapes(folder: Path, metadata: Sequence[WeightMetadata]) -> None:
    """Write down in a checkpoint which weights it is of."""
    folder.mkdir(parents=True, exist_ok=True)
    shapes = {weight.name: weight.shape for weight in metadata}
    (folder / SHAPES).write_text(json.dumps(shapes))


def check_shapes(folder: Path, metadata: Sequence[WeightMetadata]) -> None:
    """Compare the weights of the checkpoint in ``folder`` with those that it is loaded into.

    Whatever DeepSpeed would fail at halfway, in words of its own, looks like a lost engine.

    Raises:
        ValueError: it is of another model, or of another adapter.
    """
    if not (folder / SHAPES).is_file():
        return  # of version 0.11.1 or older
    noted = json.loads((folder / SHAPES).read_text())
    here = {weight.name: list(weight.shape) for weight in metadata}
    wrong = [name for name in {**noted, **here} if noted.get(name) != here.get(name)]
    if wrong:
        shown = f"{wrong[0]} has shape {noted.get(wrong[0])} there and {here.get(wrong[0])} here"
        raise ValueError(
            f"resume: the checkpoint in {folder} is of another model ({len(wrong)} weights differ: "
            f"{shown}). Leave society.models and policy.lora as they were, or start a new run"
        )


def check_loaded_weights(model: PreTrainedModel, folder: Path, *, zero_stage: int) -> None:
    """Compare every weight, gathered, with the checkpoint it was loaded from (collective).

    A wrongly filled shard trains on with plausible losses, so nothing later would tell.

    Raises:
        ValueError: weights that differ from the safetensors files, or are missing in them.
    """
    files = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as checkpoint:
            files.update(dict.fromkeys(checkpoint.keys(), path))
    wrong = [
        name
        for name, weight in named_weights(model, zero_stage=zero_stage)
        if not _equals_stored(weight.cpu(), name, files.get(name))
    ]
    if wrong:
        raise ValueError(
            f"society.models: {len(wrong)} weights of the model loaded from {folder} differ from "
            f"its safetensors files or are missing there, first {wrong[0]!r}; save the model "
            "again in safetensors format"
        )


def _equals_stored(weight: torch.Tensor, name: str, path: Path | None) -> bool:
    if path is None:
        return False
    with safe_open(path, framework="pt") as checkpoint:
        return torch.equal(checkpoint.get_tensor(name).to(weight.dtype), weight)


def save_model(
    model: PreTrainedModel, folder: Path, *, base: Path, zero_stage: int, rank: int
) -> None:
    """Write the model in Hugging Face format, described as ``base`` is (collective).

    Rank 0 holds the whole model in host memory while it writes.
    """
    weights = {}
    for name, weight in named_weights(model, zero_stage=zero_stage):
        if rank == 0:
            weights[name] = weight.cpu()
    if rank > 0:
        return
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, state_dict=weights)
    describe_as(base, folder)
