"""The models and question files that a configuration names, found and checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from comas.cold_start.demonstrations import in_words, load_demonstrations
from comas.cold_start.teaching import FOLDER, ColdStart, plan_cold_start
from comas.config.paths import tried
from comas.config.plugins import digest_of
from comas.config.schema import Config, Data
from comas.data import QuestionSet, fixed_subset, load_questions
from comas.data.probe import ProbeItem, load_probe
from comas.preflight.checks import Check, Checks
from comas.preflight.locations import find_location, held_out_rules, is_built, training_rules
from comas.preflight.memory import ModelShape, model_shape, shipped_shape
from comas.quickstart import QUICKSTART_PREFIX
from comas.quickstart.build import ARCHITECTURES, write_questions
from comas.quickstart.tokenizers import MAX_LENGTH
from comas.quickstart.world import VARIANTS
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.seals import read_inputs
from comas.utils.chat import ChatEncoder, check_system_prompt
from comas.utils.invocation import of_checkout
from comas.utils.model_folder import (
    check_model_folder,
    contents_of,
    context_length,
    description_of,
    is_here,
    load_tokenizer,
    may_be_hub_name,
    without_weights,
)
from comas.utils.thinking import ThinkingMarks
from comas.verification.verifiers import VERIFIERS, reads_columns

EMBEDDED_FILES = [f"quickstart/{name}.jsonl" for name in ("train", "validation", "probe")]
EMBEDDED_MODELS = [f"quickstart/models/{name}" for name in (*ARCHITECTURES, *VARIANTS)]
EMBEDDED_SHAPE = ModelShape(500_000, 4, 128, 512, 128, 128, 2048)
"""An upper bound for every embedded model."""


@dataclass(frozen=True)
class FoundModel:
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


@dataclass(frozen=True)
class Inputs:
    """The inputs of a run; unusable models are left out, and unusable files are None."""

    models: Mapping[str, FoundModel]
    """Models by their names in ``society.models``."""
    train: QuestionSet | None
    validation: QuestionSet | None
    probe: Sequence[ProbeItem] | None
    """Planted solutions; None also without ``data.probe``."""
    locations: Mapping[str, str]
    """Name in the configuration -> where the model or file is, or is still to be built."""

    @property
    def is_built(self) -> bool:
        """True if nothing that is embedded is still to be built."""
        return all(is_built(name, location) for name, location in self.locations.items())

    @cached_property
    def contents(self) -> dict[str, str]:
        """A digest of every file and model that is here (of a hub model its commit), which a
        resumed run compares.

        Reads all weights: 8 s of CPU time for 3 B parameters in bfloat16, shards in parallel.
        """
        read: dict[str, list[Any]] = {
            "data.train": [self.train and asdict(self.train)],
            "data.validation": [self.validation and asdict(self.validation)],
            "data.probe": [None, *map(asdict, self.probe or ())],
        }
        found = {}
        for key, rows in read.items():
            if any(rows):
                # Columns may hold what is not JSON, such as a date or an image.
                text = json.dumps(rows, default=lambda value: type(value).__name__)
                found[key] = f"sha256 {digest_of(text)}"
        for name, model in self.models.items():
            if model.folder is not None and model.cold_start is None:
                found[name] = contents_of(model.location, folder=model.folder)
        return found


def find_inputs(config: Config, checks: Checks) -> Inputs:
    """Find all models and files of ``config``, each a line of ``checks``. A resumed run continues
    with the models and questions that it began with."""
    data, asked = config.data, config.validation.num_questions
    found = {
        name: checks.find(f"model {name}", "complete", partial(find_model, config, name))
        for name in dict.fromkeys(config.models)
    }
    files: dict[str, str] = {}
    with TemporaryDirectory() as folder:
        write_questions(Path(folder), seed=config.seed)

        def place(name: str) -> str:
            """Note where a file is; return the file to read, in ``folder`` until it is built."""
            files[name] = location = find_location(config, name, embedded=EMBEDDED_FILES)
            return location if is_built(name, location) else str(Path(folder, Path(name).name))

        train = checks.find(
            f"data.train {data.train}",
            f"{config.rollout.batch_size} questions or more",
            lambda: _read_questions(config, place(data.train), training_rules(config)),
            show=lambda found: str(len(found.questions)),
        )
        validation = checks.find(
            f"data.validation {data.validation}",
            "questions" if asked is None else f"{asked} questions or more",
            lambda: _read_held_out(config, place(data.validation)),
            show=lambda found: str(len(found.questions)),
        )
        probe = None
        if (name := data.probe) is not None:
            probe = checks.find(
                f"data.probe {name}",
                "planted solutions",
                lambda: load_probe(Path(place(name))),
                show=lambda found: str(len(found)),
            )
    usable = {name: model for name, model in found.items() if model is not None}
    models = with_cold_starts(config, checks, usable)
    locations = {name: model.location for name, model in models.items()} | files
    return Inputs(models, train, validation, probe, locations)


def check_held_out(train: QuestionSet, held_out: QuestionSet) -> Check:
    """Warn of validation questions that are also trained on, compared by their texts."""
    trained = {question.text for question in train.questions}
    num_shared = sum(question.text in trained for question in held_out.questions)
    warning = (
        f"data.validation: {num_shared} of {len(held_out.questions)} questions are among those of "
        "data.train, so that accuracy there is no sign of learning; name another file"
    )
    subject, wanted, present = "held-out questions", "not in data.train", f"{num_shared} are"
    return Check(subject, wanted, present, warning=warning if num_shared else None)


def _read_questions(config: Config, file: str, rules: Data) -> QuestionSet:
    """Return the questions, with their columns for the reward and verifiers that read them."""
    scheme = REWARD_SCHEMES.find(config.reward.scheme)
    chosen = {domain: VERIFIERS.find(name) for domain, name in config.verifiers.items()}
    return load_questions(
        file,
        rules,
        with_columns=scheme is not None and scheme.reads_columns,
        verified_with=[domain for domain, one in chosen.items() if one and reads_columns(one)],
    )


def _read_held_out(config: Config, file: str) -> QuestionSet:
    found = _read_questions(config, file, held_out_rules(config))
    asked = fixed_subset(found.questions, config.validation.num_questions)
    return QuestionSet(tuple(asked), found.answers)


def find_model(config: Config, name: str) -> FoundModel:
    """Return the model of this name. Raises ValueError, with the name, unless it is a Hugging Face
    folder or hub name with a usable tokenizer (embedded models are not checked).

    The chat template must have a place for ``rollout.system_prompt``, accept the variables of each
    policy, and use marks that no message can imitate.
    """
    location = find_location(config, name, embedded=EMBEDDED_MODELS)
    is_known = Path(location).exists() or may_be_hub_name(location)
    if is_built(name, location) and not is_known:
        remedy = (
            "Give a folder in Hugging Face format, or a hub name such as Qwen/Qwen2.5-3B-Instruct"
        )
        if Path(location).parts[-3:-1] == ("saves", "models"):
            command = of_checkout(f"bash scripts/get_model.sh {Path(location).name}")
            remedy = f"To get it, if it is known there: {command}"
        if Path(location).parent.name == FOLDER:
            remedy = "society.cold_start taught it: restore it, or start a new run"
        raise ValueError(
            f"society.models names {location!r}, which is neither a folder here nor a hub name"
            f"{tried(location)}. {remedy}."
        )
    try:
        return _checked(config, name, location)
    except ValueError as error:
        raise ValueError(f"society.models names {location!r}: {error}") from error


def _checked(config: Config, name: str, location: str) -> FoundModel:
    if name.startswith(QUICKSTART_PREFIX):
        _check_context(config, MAX_LENGTH)
    if not is_built(name, location):
        return FoundModel(location, None)
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
    _check_context(config, context_length(modules.config.to_dict()))
    if not set(policies).isdisjoint(config.trained_policies):
        check_trainable(modules)
        why = why_padded(modules)
    return FoundModel(location, folder, encoder.thinking, why_padded=why)


def _check_context(config: Config, longest: int | None) -> None:
    if longest is not None and config.rollout.max_model_len > longest:
        limits = "rollout.max_prompt_tokens or rollout.max_response_tokens"
        raise ValueError(f"its context is {longest} tokens; lower {limits}")


def shapes_of(config: Config, models: Mapping[str, FoundModel]) -> dict[str, ModelShape]:
    """Return the known shapes of the configuration's models, by name; that of a missing model, too,
    if it is shipped in ``configs/models/``."""
    shapes = {}
    for name in dict.fromkeys(config.models):
        found = models.get(name)
        if found is not None and name.startswith(QUICKSTART_PREFIX):
            shapes[name] = EMBEDDED_SHAPE
        elif found is not None or shipped_shape(name):
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
            found[name] = replace(model, location=cold_start.folder, folder=Path(cold_start.folder))
        elif cold_start is not None:
            found[name] = replace(model, cold_start=cold_start)
    return found
