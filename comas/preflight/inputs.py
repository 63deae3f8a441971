"""The models and question files that a configuration names, found and checked."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from comas.config.plugins import digest_of
from comas.config.schema import Config, Data
from comas.data import QuestionSet, fixed_subset, load_questions
from comas.data.probe import ProbeItem, load_probe
from comas.preflight.checks import Check, Checks
from comas.preflight.locations import find_location, held_out_rules, training_rules
from comas.preflight.models import FoundModel, find_model
from comas.preflight.sizes import derive_sizes
from comas.quickstart.build import NUM_TRAIN_PER_DOMAIN, NUM_VALIDATION_PER_DOMAIN
from comas.quickstart.probe import NUM_PROBE_ITEMS
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.prepared import Sizes
from comas.types import DOMAINS
from comas.utils.model_folder import contents_of
from comas.verification.verifiers import VERIFIERS, reads_columns

EMBEDDED_RECORDS = {
    "quickstart/train.jsonl": NUM_TRAIN_PER_DOMAIN * len(DOMAINS),
    "quickstart/validation.jsonl": NUM_VALIDATION_PER_DOMAIN * len(DOMAINS),
    "quickstart/probe.jsonl": NUM_PROBE_ITEMS,
}
"""File -> number of records that the recipe makes."""


@dataclass(frozen=True)
class FoundRecords:
    """A usable file of questions or of planted solutions."""

    location: str
    num_records: int
    questions: QuestionSet | None = None
    """The questions; None for planted solutions, and while the file is still to be built."""
    probe: Sequence[ProbeItem] = ()
    sizes: Sizes | None = None
    """The sizes of a run that trains on these questions."""

    def __str__(self) -> str:
        return str(self.num_records)

    @property
    def contents(self) -> str | None:
        """A digest of the records as they are read; None while they are still to be built."""
        if self.questions is None and not self.probe:
            return None
        read = [asdict(self.questions) if self.questions else None, *map(asdict, self.probe)]
        # Columns may hold what is not JSON, such as a date or an image.
        text = json.dumps(read, default=lambda value: type(value).__name__)
        return f"sha256 {digest_of(text)}"


@dataclass(frozen=True)
class Inputs:
    """The inputs of a run; unusable models are left out, and unusable files are None."""

    models: Mapping[str, FoundModel]
    """Models by their names in ``society.models``."""
    train: FoundRecords | None
    validation: FoundRecords | None
    probe: FoundRecords | None

    @property
    def question_sets(self) -> list[QuestionSet]:
        """The questions that are here, to train on and to validate with."""
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
        """Return a digest of every file and model that is here (of a hub model its commit), which a
        resumed run compares.

        Reads all weights: 8 s of CPU time for 3 B parameters in bfloat16, shards in parallel.
        """
        files = {"train": self.train, "validation": self.validation, "probe": self.probe}
        found = {f"data.{name}": file.contents for name, file in files.items() if file}
        for name, model in self.models.items():
            if model.folder is not None and model.cold_start is None:
                found[name] = contents_of(model.location, folder=model.folder)
        return {name: digest for name, digest in found.items() if digest is not None}

    def locations(self, config: Config) -> dict[str, str]:
        """Return the location of each name in the configuration."""
        data = config.data
        files = {data.train: self.train, data.validation: self.validation}
        if data.probe is not None:
            files[data.probe] = self.probe
        found = {name: model.location for name, model in self.models.items()}
        return found | {name: file.location for name, file in files.items() if file is not None}


def find_inputs(config: Config, checks: Checks) -> Inputs:
    """Find all models and files of ``config``, each a line of ``checks``. A resumed run continues
    with the models and questions that it began with."""
    data, asked = config.data, config.validation.num_questions
    models = {
        name: checks.find(f"model {name}", "complete", partial(find_model, config, name))
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


def check_held_out(config: Config, inputs: Inputs) -> Iterator[Check]:
    """Warn of validation questions that are also trained on, compared by their texts."""
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
    warning = (
        f"data.validation: {num_shared} of {num_held_out} questions are among those of "
        "data.train, so that accuracy there is no sign of learning; name another file"
    )
    yield Check(
        "held-out questions",
        "not in data.train",
        f"{num_shared} are",
        warning=warning if num_shared else None,
    )


def _find_questions(config: Config, name: str, rules: Data) -> FoundRecords:
    """Return the questions, with their columns for the reward and verifiers that read them."""
    location, is_built = find_location(config, name, embedded=EMBEDDED_RECORDS)
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
    location, is_built = find_location(config, name, embedded=EMBEDDED_RECORDS)
    items = load_probe(Path(location)) if is_built else []
    return FoundRecords(location, len(items) or EMBEDDED_RECORDS[name], probe=items)
