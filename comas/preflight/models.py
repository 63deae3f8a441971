"""The models that a configuration names: where they are, and whether they can be used."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comas.cold_start.teaching import ColdStart
from comas.config.paths import tried
from comas.config.schema import Config, Rollout
from comas.preflight.locations import find_location
from comas.preflight.model_shape import ModelShape, is_shipped, model_shape
from comas.quickstart import QUICKSTART_PREFIX
from comas.quickstart.build import ARCHITECTURES
from comas.quickstart.world import VARIANTS
from comas.types import Device
from comas.utils.chat import ChatEncoder, check_system_prompt
from comas.utils.invocation import of_checkout
from comas.utils.model_folder import (
    check_model_folder,
    description_of,
    is_here,
    load_tokenizer,
    may_be_hub_name,
    without_weights,
)
from comas.utils.thinking import ThinkingMarks

EMBEDDED_MODELS = [f"quickstart/models/{name}" for name in (*ARCHITECTURES, *VARIANTS)]
EMBEDDED_SHAPE = ModelShape(500_000, 4, 128, 512, 128, 2048)
"""An upper bound for every embedded model."""


@dataclass(frozen=True)
class FoundModel:
    """A usable model."""

    location: str
    """Folder or hub name of the model."""
    folder: Path | None
    """The folder of its tokenizer and configuration; None if it is still to be built."""
    thinking: ThinkingMarks | None = None
    cold_start: ColdStart | None = None
    """The cold start that it still has to be taught."""
    why_padded: str | None = None
    """See ``comas.engines.policy.architecture``; None for models that are not trained."""

    def __str__(self) -> str:
        place = "built" if self.folder is None else "downloaded"
        where = "here" if self.folder and is_here(self.location) else f"{place} at the start"
        marks = self.thinking
        return where if marks is None else f"{where}, thinks from {marks.start} to {marks.end}"


def find_model(config: Config, name: str) -> FoundModel:
    """Return the model of this name. Raises ValueError, which names it, if it cannot be used."""
    location, is_built = find_location(config, name, embedded=EMBEDDED_MODELS)
    if not is_built:
        return FoundModel(location, None)
    is_embedded = name.startswith(QUICKSTART_PREFIX)
    kwargs_of_policies = zip(config.models, config.chat_template_kwargs, strict=True)
    thinking = check_model(
        location,
        is_embedded=is_embedded,
        rollout=config.rollout,
        template_kwargs=[kwargs for model, kwargs in kwargs_of_policies if model == name],
    )
    why = None
    if not is_embedded:
        from comas.engines.policy.architecture import check_trainable, why_padded

        with _naming_model(location):
            modules = without_weights(str(description_of(location)))
            if name in {config.models[policy] for policy in config.trained_policies}:
                check_trainable(modules)
                why = why_padded(modules)
    return FoundModel(location, description_of(location), thinking, why_padded=why)


def shapes_of(
    config: Config, models: Mapping[str, FoundModel], *, device: Device
) -> dict[str, ModelShape]:
    """Return the known shapes of the configuration's models, by name; that of a missing model, too,
    if it is shipped in ``configs/models/``."""
    shapes = {}
    for name in dict.fromkeys(config.models):
        found = models.get(name)
        if name.startswith(QUICKSTART_PREFIX) and found is not None:
            is_bound = device == "cpu" or found.folder is None
            shapes[name] = EMBEDDED_SHAPE if is_bound else model_shape(found.location)
        elif found is not None or is_shipped(name):
            shapes[name] = model_shape(name if found is None else found.location)
    return shapes


def check_model(
    model: str,
    *,
    is_embedded: bool,
    rollout: Rollout,
    template_kwargs: Sequence[Mapping[str, Any]] = ({},),
) -> ThinkingMarks | None:
    """Return the model's thinking marks. Raises ValueError unless it is a Hugging Face folder or
    hub name with a usable tokenizer; that of an embedded model is ours and needs no check.

    The chat template must have a place for ``rollout.system_prompt``, accept each policy's
    ``template_kwargs``, and use marks that no message can imitate.
    """
    if not (Path(model).exists() or may_be_hub_name(model)):
        remedy = (
            "Give a folder in Hugging Face format, or a hub name such as Qwen/Qwen2.5-3B-Instruct"
        )
        if Path(model).parts[-3:-1] == ("saves", "models"):
            command = of_checkout(f"bash scripts/get_model.sh {Path(model).name}")
            remedy = f"To get it, if it is known there: {command}"
        raise ValueError(
            f"society.models names {model!r}, which is neither a folder here nor a hub name"
            f"{tried(model)}. {remedy}."
        )
    with _naming_model(model):
        if Path(model).exists():
            check_model_folder(Path(model))
        if is_embedded and rollout.system_prompt is None and not any(template_kwargs):
            return None
        folder = description_of(model)
        tokenizer = load_tokenizer(folder)
        for kwargs in template_kwargs:
            encoder = ChatEncoder(tokenizer, folder=folder, template_kwargs=kwargs)
        if rollout.system_prompt is not None:
            check_system_prompt(tokenizer, rollout.system_prompt, folder=folder)
        return encoder.thinking


@contextmanager
def _naming_model(model: str) -> Iterator[None]:
    """Let every ValueError within the block name the key and the model."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"society.models names {model!r}: {error}") from error
