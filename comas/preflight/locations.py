"""Where the names of models and question files lead."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from comas import quickstart
from comas.config.paths import tried
from comas.config.schema import Config, Data, Rollout
from comas.data import RECORDS, reasoning_gym
from comas.preflight.memory import head_size_of
from comas.quickstart import QUICKSTART_PREFIX
from comas.quickstart.build import fingerprint, recipe_sources
from comas.types import Device
from comas.utils.chat import ChatEncoder, check_system_prompt
from comas.utils.model_folder import (
    check_model_folder,
    description_of,
    load_tokenizer,
    may_be_hub_name,
    without_weights,
)
from comas.utils.thinking import ThinkingMarks

Kwargs = Mapping[str, Any]
"""Further variables of a chat template."""


def locate(
    names: Iterable[str],
    *,
    saves: Path,
    seed: int,
    found_before: Mapping[str, str],
    builds: bool = True,
) -> dict[str, str]:
    """Location of each name of a model or question file.

    An embedded one (``quickstart/...``) leads into the society under ``saves``, which is built
    if it is not there, unless ``builds`` is False; any other leads to itself. ``found_before``
    says where a run found them when it began (inputs.json).

    Raises ValueError when an embedded one is gone and today's recipe makes another.
    """
    locations = {}
    for name in names:
        before = found_before.get(name)
        if not name.startswith(QUICKSTART_PREFIX):
            locations[name] = before or name
        elif before is not None and Path(before).exists():
            locations[name] = before
        else:
            find = quickstart.build_society if builds else society_folder
            society = find(saves, seed=seed)
            # Wherever a run and its society lie by now, the same recipe makes the same.
            within = Path(society.name, name.removeprefix(QUICKSTART_PREFIX)).parts
            location = society.parent.joinpath(*within)
            if before is not None and Path(before).parts[-len(within) :] != within:
                raise ValueError(
                    f"this run began with {before} ({name}), which is gone, and this version of "
                    f"the code makes another ({location}). Put it back, or start a new run"
                )
            locations[name] = str(location)
    return locations


def training_rules(config: Config) -> Data:
    """How the questions of ``data.train`` are read: as ``data`` says, unless they are embedded
    ones."""
    if config.data.train.startswith(QUICKSTART_PREFIX):
        return RECORDS
    num_steps = config.training.num_steps
    asked = None if num_steps is None else num_steps * config.rollout.batch_size
    return reasoning_gym.endless_rules(config.data, num_questions=asked)


def held_out_rules(config: Config) -> Data:
    """How the questions of ``data.validation`` are read, likewise."""
    embedded = config.data.validation.startswith(QUICKSTART_PREFIX)
    return RECORDS if embedded else reasoning_gym.held_out_rules(config.data)


def society_folder(saves: Path, *, seed: int) -> Path:
    """Where today's recipe builds the quick-start society, or has built it."""
    return saves / "quickstart" / fingerprint(recipe_sources(), seed=seed)


def check_model(
    model: str, *, is_embedded: bool, rollout: Rollout, template_kwargs: Sequence[Kwargs] = ({},)
) -> ThinkingMarks | None:
    """Raise ValueError unless ``model`` is a folder in Hugging Face format, or on the hub, with a
    tokenizer that can be used; returns its thinking marks. Of an embedded one, the tokenizer is our
    own, and it has none.

    No message may imitate the marks of its chat template, which must have a place for
    ``rollout.system_prompt`` and read all ``template_kwargs``, those of each policy.
    """
    if not (Path(model).exists() or may_be_hub_name(model)):
        raise ValueError(
            f"society.models names {model!r}, which is neither a folder here nor a hub name"
            f"{tried(model)}. Give a folder in Hugging Face format, or a hub name such as "
            "Qwen/Qwen2.5-3B-Instruct."
        )
    try:
        if Path(model).exists():
            check_model_folder(Path(model))
        asks_nothing = rollout.system_prompt is None and rollout.thinking_marks is None
        if is_embedded and asks_nothing and not any(template_kwargs):
            return None
        folder = description_of(model)
        tokenizer = load_tokenizer(folder)
        for kwargs in template_kwargs:
            encoder = ChatEncoder(
                tokenizer,
                folder=folder,
                template_kwargs=kwargs,
                thinking_marks=rollout.thinking_marks,
            )
        if rollout.system_prompt is not None:
            check_system_prompt(tokenizer, rollout.system_prompt, folder=folder)
        return encoder.thinking
    except ValueError as error:
        raise ValueError(f"society.models names {model!r}: {error}") from error


def check_architecture(model: str, *, is_trained: bool, device: Device) -> None:
    """Raise ValueError unless a model of its kind, by its config.json, can be sampled from on
    ``device`` and, where ``is_trained``, be trained."""
    from comas.engines.policy.architecture import check_trainable
    from comas.engines.rollout.cpu.head_size import check_head_size

    try:
        modules = without_weights(str(description_of(model)))
        if is_trained:
            check_trainable(modules)
        if device == "cpu":
            check_head_size(head_size_of(modules.config))
    except ValueError as error:
        raise ValueError(f"society.models names {model!r}: {error}") from error


def check_shards(model: str, size: int) -> None:
    """Raise ValueError unless a model, by its config.json, can be sharded over ``size`` GPUs of an
    engine (``rollout.tensor_parallel``): each has as many heads, and as much of an MLP, as another.

    Example: Qwen2.5-3B has 16 attention heads, 2 key-value heads and an MLP of 11008: 1 or 2.
    """
    if size == 1:
        return
    text = without_weights(str(description_of(model))).config.get_text_config()
    heads = text.num_attention_heads
    parts = {
        "attention heads": heads,
        "key-value heads": getattr(text, "num_key_value_heads", None) or heads,
        "MLP features": getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
    }
    common = math.gcd(*parts.values())
    if common % size:
        possible = [str(n) for n in range(1, min(common, 64) + 1) if common % n == 0]
        raise ValueError(
            f"rollout.tensor_parallel={size} does not divide "
            f"{', '.join(f'the {count} {part}' for part, count in parts.items() if count % size)} "
            f"of {model}: set it to {' or '.join(possible)}, or choose another model"
        )
