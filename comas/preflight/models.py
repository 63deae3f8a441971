"""The models that a configuration names: where they are, and whether they can be used."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from comas.cold_start.demonstrations import in_words, load_demonstrations
from comas.cold_start.teaching import ColdStart, plan_cold_start
from comas.config.paths import tried
from comas.config.schema import Config
from comas.preflight.checks import Check, Checks
from comas.preflight.locations import find_location, is_built
from comas.preflight.memory import ModelShape, is_shipped, model_shape
from comas.quickstart import QUICKSTART_PREFIX
from comas.quickstart.build import ARCHITECTURES
from comas.quickstart.world import VARIANTS
from comas.run.seals import read_inputs
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
        said = ["here" if self.folder and is_here(self.location) else f"{place} at the start"]
        if self.thinking is not None:
            said.append(f"thinks from {self.thinking.start} to {self.thinking.end}")
        if self.why_padded is not None:
            said.append(f"update with a padded row for each sample, slower, as {self.why_padded}")
        return ", ".join(said)


def find_model(config: Config, name: str) -> FoundModel:
    """Return the model of this name. Raises ValueError, with the name, unless it is a Hugging Face
    folder or hub name with a usable tokenizer (embedded models are not checked).

    The chat template must have a place for ``rollout.system_prompt``, accept the variables of each
    policy, and use marks that no message can imitate.
    """
    location = find_location(config, name, embedded=EMBEDDED_MODELS)
    if not is_built(name, location):
        return FoundModel(location, None)
    if not (Path(location).exists() or may_be_hub_name(location)):
        remedy = (
            "Give a folder in Hugging Face format, or a hub name such as Qwen/Qwen2.5-3B-Instruct"
        )
        if Path(location).parts[-3:-1] == ("saves", "models"):
            command = of_checkout(f"bash scripts/get_model.sh {Path(location).name}")
            remedy = f"To get it, if it is known there: {command}"
        raise ValueError(
            f"society.models names {location!r}, which is neither a folder here nor a hub name"
            f"{tried(location)}. {remedy}."
        )
    try:
        return _checked(config, name, location)
    except ValueError as error:
        raise ValueError(f"society.models names {location!r}: {error}") from error


def _checked(config: Config, name: str, location: str) -> FoundModel:
    if Path(location).exists():
        check_model_folder(Path(location))
    folder, prompt = description_of(location), config.rollout.system_prompt
    policies = [policy for policy, model in enumerate(config.models) if model == name]
    template_kwargs = [config.chat_template_kwargs[policy] for policy in policies]
    if name.startswith(QUICKSTART_PREFIX) and prompt is None and not any(template_kwargs):
        return FoundModel(location, folder)
    from comas.engines.policy.architecture import check_trainable, why_padded

    tokenizer = load_tokenizer(folder)
    for kwargs in template_kwargs:
        encoder = ChatEncoder(tokenizer, folder=folder, template_kwargs=kwargs)
    if prompt is not None:
        check_system_prompt(tokenizer, prompt, folder=folder)
    modules, why = without_weights(str(folder)), None
    if not set(policies).isdisjoint(config.trained_policies):
        check_trainable(modules)
        why = why_padded(modules)
    return FoundModel(location, folder, encoder.thinking, why_padded=why)


def shapes_of(config: Config, models: Mapping[str, FoundModel]) -> dict[str, ModelShape]:
    """Return the known shapes of the configuration's models, by name; that of a missing model, too,
    if it is shipped in ``configs/models/``."""
    shapes = {}
    for name in dict.fromkeys(config.models):
        found = models.get(name)
        if found is not None and name.startswith(QUICKSTART_PREFIX):
            shapes[name] = EMBEDDED_SHAPE
        elif found is not None or is_shipped(name):
            shapes[name] = model_shape(name if found is None else found.location)
    return shapes


def with_cold_starts(
    config: Config, checks: Checks, models: Mapping[str, FoundModel]
) -> dict[str, FoundModel]:
    """Return ``models`` with each one's taught copy, or the cold start still to be taught; each is
    a line of ``checks``. A resumed run keeps the models that it began with."""
    found, path = dict(models), config.society.cold_start
    before = read_inputs(Path(config.resume)) if config.resume else {}
    trained = dict.fromkeys(config.models[policy] for policy in config.trained_policies)
    names = [name for name in trained if name in found and name not in before]
    if path is None or not names:
        return found
    find = partial(load_demonstrations, config)
    said = checks.find(f"society.cold_start {path}", "demonstrations", find, show=in_words)
    for name in names if said is not None else ():
        model, subject = found[name], f"cold start of {Path(name).name}"
        if model.folder is None:
            checks.append(Check(subject, "taught", "taught once it is built"))
            continue
        plan = partial(plan_cold_start, config, name, model.location, said or ())
        cold_start = checks.find(subject, "taught", plan)
        if cold_start is not None and cold_start.is_done:
            folder = Path(cold_start.folder)
            found[name] = replace(model, location=cold_start.folder, folder=folder)
        elif cold_start is not None:
            found[name] = replace(model, cold_start=cold_start)
    return found
