"""LoRA adapters behind one server of the model that they adapt."""

import json
from collections.abc import Sequence
from pathlib import Path

from comas.engines.rollout.vllm_options import lora_room
from evaluation.models import LocalModel


def groups_of(models: Sequence[LocalModel]) -> list[list[int]]:
    """Indices of the models that share a server: adapters of the same model.

    What is no adapter has a server of its own: on a CPU, vLLM's kernels give a request without
    an adapter the last one, if another request of the batch has one.
    """
    groups: list[list[int]] = []
    of_base: dict[Path, list[int]] = {}
    for index, model in enumerate(models):
        if model.adapter is not None and model.folder in of_base:
            of_base[model.folder].append(index)
            continue
        groups.append([index])
        if model.adapter is not None:
            of_base[model.folder] = groups[-1]
    return groups


def lora_flags(adapters: Sequence[LocalModel]) -> list[str]:
    """What vLLM's server is told of them; each is asked for by its folder."""
    if not adapters:
        return []
    named = [{"name": str(m.adapter), "path": str(m.adapter)} for m in adapters]
    return [
        "--enable-lora",
        f"--max-loras={len(adapters)}",
        f"--max-lora-rank={max(lora_room(model.adapter_rank) for model in adapters)}",
        "--lora-modules",
        *map(json.dumps, named),
    ]
