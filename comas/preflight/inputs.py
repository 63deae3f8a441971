"""The models and question files that a configuration names, found and checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from comas.config.plugins import digest_of
from comas.config.schema import Config, Data
from comas.data import QuestionSet, fixed_subset, load_questions
from comas.data.probe import ProbeItem, load_probe
from comas.preflight.checks import Check, Checks
from comas.preflight.locations import find_location, held_out_rules, is_built, training_rules
from comas.preflight.models import FoundModel, find_model, with_cold_starts
from comas.quickstart.build import write_questions
from comas.reward_formulation import REWARD_SCHEMES
from comas.utils.model_folder import contents_of
from comas.verification.verifiers import VERIFIERS, reads_columns

EMBEDDED_FILES = [f"quickstart/{name}.jsonl" for name in ("train", "validation", "probe")]


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

    def contents(self) -> dict[str, str]:
        """Return a digest of every file and model that is here (of a hub model its commit), which a
        resumed run compares.

        Reads all weights: 8 s of CPU time for 3 B parameters in bfloat16, shards in parallel.
        """
        read: dict[str, list[Any]] = {
            "data.train": [self.train and asdict(self.train)],
            "data.validation": [self.validation and asdict(self.validation)],
            "data.probe": [None, *map(asdict, self.probe or ())],
        }
        found = {key: _digest_of(rows) for key, rows in read.items() if any(rows)}
        for name, model in self.models.items():
            if model.folder is not None and model.cold_start is None:
                found[name] = contents_of(model.location, folder=model.folder)
        return found


def _digest_of(rows: Sequence[Any]) -> str:
    # Columns may hold what is not JSON, such as a date or an image.
    text = json.dumps(rows, default=lambda value: type(value).__name__)
    return f"sha256 {digest_of(text)}"


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
            """Note the location of a file; return the file to read, in ``folder`` if it is still to
            be built."""
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
