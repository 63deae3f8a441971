"""The models and questions that a configuration names: where they are, and whether they can be
used."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from comas import quickstart
from comas.cold_start.teaching import ColdStart
from comas.config.paths import tried
from comas.config.plugins import digest_of
from comas.config.schema import Config, Data, Rollout
from comas.data import RECORDS, QuestionSet, fixed_subset, load_questions, reasoning_gym
from comas.data.probe import ProbeItem, load_probe
from comas.preflight.checks import Check, Checks
from comas.preflight.model_shape import ModelShape, is_shipped, model_shape
from comas.preflight.sizes import derive_sizes
from comas.quickstart import QUICKSTART_PREFIX
from comas.quickstart.build import (
    ARCHITECTURES,
    NUM_TRAIN_PER_DOMAIN,
    NUM_VALIDATION_PER_DOMAIN,
    fingerprint,
    recipe_sources,
)
from comas.quickstart.probe import NUM_PROBE_ITEMS
from comas.quickstart.world import VARIANTS
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.prepared import Sizes
from comas.run.seals import read_inputs
from comas.types import DOMAINS, Device
from comas.utils.chat import ChatEncoder, check_system_prompt
from comas.utils.gguf import GGUF_SUFFIX, converted
from comas.utils.invocation import of_checkout
from comas.utils.model_folder import (
    check_model_folder,
    contents_of,
    description_of,
    is_here,
    load_tokenizer,
    may_be_hub_name,
    without_weights,
)
from comas.utils.thinking import ThinkingMarks
from comas.verification.verifiers import VERIFIERS, reads_columns

EMBEDDED_MODELS = [f"quickstart/models/{name}" for name in (*ARCHITECTURES, *VARIANTS)]
EMBEDDED_SHAPE = ModelShape(500_000, 4, 128, 512, 128, 2048)
"""Each has less of everything."""
EMBEDDED_RECORDS = {
    "quickstart/train.jsonl": NUM_TRAIN_PER_DOMAIN * len(DOMAINS),
    "quickstart/validation.jsonl": NUM_VALIDATION_PER_DOMAIN * len(DOMAINS),
    "quickstart/probe.jsonl": NUM_PROBE_ITEMS,
}
"""File -> how many records the recipe makes."""
Kwargs = Mapping[str, Any]
"""Further variables of a chat template."""


@dataclass(frozen=True)
class FoundModel:
    """A model that can be used."""

    location: str
    """Its folder or hub name."""
    folder: Path | None
    """What holds its tokenizer and configuration; None: it is still to be built."""
    thinking: ThinkingMarks | None = None
    cold_start: ColdStart | None = None
    """What it is still to be taught."""
    why_padded: str | None = None
    """See ``comas.engines.policy.architecture``; None, too, of what is not trained."""

    def __str__(self) -> str:
        place = "built" if self.folder is None else "downloaded"
        where = "here" if self.folder and is_here(self.location) else f"{place} at the start"
        marks = self.thinking
        return where if marks is None else f"{where}, thinks from {marks.start} to {marks.end}"


@dataclass(frozen=True)
class FoundRecords:
    """A file of questions, or of planted solutions, that can be used."""

    location: str
    num_records: int
    questions: QuestionSet | None = None
    """None: they are still to be built, or no questions."""
    probe: Sequence[ProbeItem] = ()
    sizes: Sizes | None = None
    """Of the run that trains on them."""

    def __str__(self) -> str:
        return str(self.num_records)

    @property
    def contents(self) -> str | None:
        """A digest of the records as they are read; None: they are still to be built."""
        if self.questions is None and not self.probe:
            return None
        read = [asdict(self.questions) if self.questions else None, *map(asdict, self.probe)]
        # Columns may hold what is not JSON, such as a date or an image.
        text = json.dumps(read, default=lambda value: type(value).__name__)
        return f"sha256 {digest_of(text)}"


@dataclass(frozen=True)
class Inputs:
    """What a configuration names; what cannot be used is left out, or None."""

    models: Mapping[str, FoundModel]
    """By the names in ``society.models``."""
    train: FoundRecords | None
    validation: FoundRecords | None
    probe: FoundRecords | None

    @property
    def question_sets(self) -> list[QuestionSet]:
        """Those that are here."""
        found = [records.questions for records in (self.train, self.validation) if records]
        return [questions for questions in found if questions is not None]

    @property
    def is_built(self) -> bool:
        """True if nothing that is embedded is still to be built."""
        files = [records for records in (self.train, self.validation, self.probe) if records]
        return all(model.folder for model in self.models.values()) and all(
            records.questions or records.probe for records in files
        )

    def contents(self) -> dict[str, str]:
        """Return a digest of what each file of questions and each model holds that is here, of a
        model on the hub its commit; a resumed run compares them.

        All weights are read: 8 s of CPU time for 3 B parameters in bfloat16, and as many shards at
        once as there are threads.
        """
        files = {"train": self.train, "validation": self.validation, "probe": self.probe}
        found = {f"data.{name}": file.contents for name, file in files.items() if file}
        for name, model in self.models.items():
            if model.folder is not None and model.cold_start is None:
                found[name] = contents_of(model.location, folder=model.folder)
        return {name: digest for name, digest in found.items() if digest is not None}

    def locations(self, config: Config) -> dict[str, str]:
        """Return where each name of the configuration leads."""
        data = config.data
        files = {data.train: self.train, data.validation: self.validation}
        if data.probe is not None:
            files[data.probe] = self.probe
        found = {name: model.location for name, model in self.models.items()}
        return found | {name: file.location for name, file in files.items() if file is not None}


def find_inputs(config: Config, checks: Checks) -> Inputs:
    """Find all models and files of ``config``; each is a line of ``checks``.

    A resumed run continues with the models and questions that it began with.
    """
    data, asked = config.data, config.validation.num_questions
    models = {
        name: checks.find(f"model {name}", "complete", partial(_find_model, config, name))
        for name in dict.fromkeys(config.models)
    }
    train = checks.find(
        f"data.train {data.train}",
        f"{config.rollout.batch_size} questions or more",
        partial(_find_training, config),
    )
    validation = checks.find(
        f"data.validation {data.validation}",
        "questions" if asked is None else f"{asked} questions or more",
        partial(_find_held_out, config),
    )
    probe = None
    if data.probe is not None:
        find = partial(_find_probe, config, data.probe)
        probe = checks.find(f"data.probe {data.probe}", "planted solutions", find)
    usable = {name: model for name, model in models.items() if model is not None}
    return Inputs(usable, train, validation, probe)


def shapes_of(config: Config, inputs: Inputs, *, device: Device) -> dict[str, ModelShape]:
    """Return the shape of each model by its name, as far as it is known: that of a model that is
    not here, too, if it is shipped in ``configs/models/``."""
    shapes = {}
    for name in dict.fromkeys(config.models):
        found = inputs.models.get(name)
        if name.startswith(QUICKSTART_PREFIX) and found is not None:
            is_bound = device == "cpu" or found.folder is None
            shapes[name] = EMBEDDED_SHAPE if is_bound else model_shape(found.location)
        elif found is not None or is_shipped(name):
            shapes[name] = model_shape(name if found is None else found.location)
    return shapes


def check_held_out(config: Config, inputs: Inputs) -> Iterator[Check]:
    """Yield whether held-out questions, by their texts, are trained on."""
    if inputs.train is None or inputs.validation is None:
        return
    train, held_out = inputs.train.questions, inputs.validation.questions
    if train is not None and held_out is not None:
        trained = {question.text for question in train.questions}
        num_shared = sum(question.text in trained for question in held_out.questions)
        num_held_out = len(held_out.questions)
    else:
        num_held_out = inputs.validation.num_records
        num_shared = num_held_out if config.data.train == config.data.validation else 0
    warning = None
    if num_shared:
        warning = (
            f"data.validation: {num_shared} of {num_held_out} questions are among those of "
            "data.train, so that accuracy there is no sign of learning; name another file"
        )
    yield Check("held-out questions", "not in data.train", f"{num_shared} are", warning=warning)


# ---------------------------------------------------------------- where a name leads


def locate(
    names: Iterable[str],
    *,
    saves: Path,
    seed: int,
    found_before: Mapping[str, str],
    builds: bool = True,
) -> dict[str, str]:
    """Return the location of each name of a model or question file.

    An embedded one (``quickstart/...``) leads into the society under ``saves``, which is built
    if it is not there, unless ``builds`` is False; a GGUF file into the folder that
    is made of it there; any other leads to itself. ``found_before`` says where a run found them
    when it began (inputs.json).

    Raises ValueError when an embedded one is gone and today's recipe makes another.
    """
    locations = {}
    for name in names:
        before = found_before.get(name)
        if name.endswith(GGUF_SUFFIX):
            locations[name] = before or str(converted(Path(name), saves=saves))
        elif not name.startswith(QUICKSTART_PREFIX):
            locations[name] = before or name
        elif before is not None and Path(before).exists():
            locations[name] = before
        else:
            build = partial(quickstart.build_society, variants=variants_in([name]))
            society = (build if builds else society_folder)(saves, seed=seed)
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
    """Return how the questions of ``data.train`` are read: as ``data`` says, unless embedded."""
    if config.data.train.startswith(QUICKSTART_PREFIX):
        return RECORDS
    num_steps = config.training.num_steps
    asked = None if num_steps is None else num_steps * config.rollout.batch_size
    return reasoning_gym.endless_rules(config.data, num_questions=asked)


def held_out_rules(config: Config) -> Data:
    """Return how the questions of ``data.validation`` are read, likewise."""
    embedded = config.data.validation.startswith(QUICKSTART_PREFIX)
    return RECORDS if embedded else reasoning_gym.held_out_rules(config.data)


def society_folder(saves: Path, *, seed: int) -> Path:
    """Return where today's recipe builds the quick-start society, or has built it."""
    return saves / "quickstart" / fingerprint(recipe_sources(), seed=seed)


def variants_in(names: Collection[str]) -> list[str]:
    """Return the variants of embedded models that are among the ``names``."""
    return [name for name in VARIANTS if f"{QUICKSTART_PREFIX}models/{name}" in names]


# ---------------------------------------------------------------- one of them


def _locate(config: Config, name: str, *, embedded: Collection[str]) -> tuple[str, bool]:
    """Return where a name leads, and whether that is there, or is still to be built."""
    saves, seed = Path(config.saves), config.seed
    before = read_inputs(Path(config.resume)) if config.resume else {}
    location = locate([name], saves=saves, seed=seed, found_before=before, builds=False)[name]
    if not name.startswith(QUICKSTART_PREFIX) or Path(location).exists():
        return location, True
    if name not in embedded:
        raise ValueError(f"{name} is not embedded; choose one of {', '.join(embedded)}")
    return location, society_folder(saves, seed=seed).is_dir() and not variants_in([name])


def _find_model(config: Config, name: str) -> FoundModel:
    location, is_built = _locate(config, name, embedded=EMBEDDED_MODELS)
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

        with _blaming_model(location):
            modules = without_weights(str(description_of(location)))
            if name in {config.models[policy] for policy in config.trained_policies}:
                check_trainable(modules)
                why = why_padded(modules)
    return FoundModel(location, description_of(location), thinking, why_padded=why)


def _find_questions(config: Config, name: str, rules: Data) -> FoundRecords:
    """Return questions, with their columns for the reward and the verifiers that read them."""
    location, is_built = _locate(config, name, embedded=EMBEDDED_RECORDS)
    if not is_built:
        return FoundRecords(location, EMBEDDED_RECORDS[name])
    scheme = REWARD_SCHEMES.find(config.reward.scheme)
    chosen = {domain: VERIFIERS.find(name) for domain, name in config.verifiers.items()}
    questions = load_questions(
        location,
        rules,
        with_columns=scheme is not None and scheme.reads_columns,
        verified_with=[domain for domain, one in chosen.items() if one and reads_columns(one)],
    )
    return FoundRecords(location, len(questions.questions), questions)


def _find_training(config: Config) -> FoundRecords:
    found = _find_questions(config, config.data.train, training_rules(config))
    return replace(found, sizes=derive_sizes(config, num_questions=found.num_records))


def _find_held_out(config: Config) -> FoundRecords:
    found = _find_questions(config, config.data.validation, held_out_rules(config))
    if (held_out := found.questions) is None:
        return found
    asked = fixed_subset(held_out.questions, config.validation.num_questions)
    return replace(found, questions=QuestionSet(tuple(asked), held_out.answers))


def _find_probe(config: Config, name: str) -> FoundRecords:
    location, is_built = _locate(config, name, embedded=EMBEDDED_RECORDS)
    items = load_probe(Path(location)) if is_built else []
    return FoundRecords(location, len(items) or EMBEDDED_RECORDS[name], probe=items)


# ---------------------------------------------------------------- whether a model can be used


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
    with _blaming_model(model):
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
def _blaming_model(model: str) -> Iterator[None]:
    """Let a ValueError within the block name the key and the model."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"society.models names {model!r}: {error}") from error
