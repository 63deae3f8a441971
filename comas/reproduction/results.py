"""The numbers of a finished run, and those of a study as a file for each machine."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

import pandas as pd
from pydantic import TypeAdapter

from comas.reproduction.experiments import Experiment
from comas.reproduction.frozen import FROZEN
from comas.reproduction.stop_rule import stopping_step
from comas.run.provenance import commits_of
from comas.run.records import Row, read_rows
from comas.types import Metrics
from comas.utils.files import read_json, write_text

WINDOW = 10
"""Steps at either end of a run whose mean stands for its beginning and its end."""
GREEDY, SAMPLED = "validation/greedy/accuracy", "validation/accuracy"
"""Held-out accuracy, mean of the agents: of their likeliest answers, and at the temperature of
training. The first is what is compared: the second also rises when an agent merely samples its
likeliest answer more often."""
QUALITIES = ("accuracy", "balanced_accuracy", "precision", "recall", "specificity")
INSTRUMENTS = (
    "reliability",
    "score_entropy",
    "commonest_evaluation",
    "diversity",
    "coupling",
    "noise",
    "skew",
    "self_bias",
)
FIRST_AGENT = "agent_0/"
BETWEEN_ROLES = f"{FIRST_AGENT}policy/advantage_between_roles"
ALONG_TRAINING = (
    "train/accuracy",
    "reward/solution",
    "reward/evaluation",
    "response_length",
    BETWEEN_ROLES,
    "evaluation/false_accusation_rate",
    "scoring/false_accusations_accepted",
    *(f"reward_effectiveness/from_score_2/{name}" for name in QUALITIES),
    *(f"instruments/{name}" for name in INSTRUMENTS),
)
"""Metrics of a step that are kept."""
OF_VALIDATIONS = ("validation/", "probe/", f"{FIRST_AGENT}validation/")
"""Beginnings of the metrics of a validation that are kept."""
PROBED = {
    "mistakes named": "probe/names",
    "right solutions accused": "probe/accuses",
    "true accusations accepted": "probe/accepts_true",
    "false accusations accepted": "probe/accepts_false",
}
WITHOUT_ANSWERS = {
    name.replace("_", " "): f"instruments/{name}"
    for name in ("reliability", "diversity", "commonest_evaluation")
}
DRAWN = (*PROBED.values(), *WITHOUT_ANSWERS.values())
"""Metrics whose course along training is kept, beside greedy accuracy's."""


@dataclass(frozen=True)
class RunResult:
    """What one experiment showed with one seed."""

    experiment: str
    seed: int
    num_steps: int
    seconds: float
    """Time of all steps and validations, without the start."""
    before: Metrics
    """The validation before the first step: accuracies, and the probe of the judges."""
    after: Metrics
    """The validation after the last step."""
    first: Metrics
    """Means of ``ALONG_TRAINING`` over the first ``WINDOW`` steps, without missing values."""
    last: Metrics
    """The same over the last steps."""
    course: Mapping[int, float]
    """Greedy accuracy by the step after which it was measured, from 0 to 1."""
    answers: Metrics = field(default_factory=dict)
    """What ``comas.reproduction.answers`` has measured of the agents before and after."""
    stopped: int | None = None
    """The step after which ``stop_rule.STOP_RULE`` would have ended the run; None: it would not."""
    along: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """``DRAWN`` metrics by validation, each as its mean since the validation before."""
    habits: Mapping[str, Metrics] = field(default_factory=dict)
    """What ``comas.reproduction.habits`` has found in its discussions."""
    commits: list[str] = field(default_factory=list)
    """Of the code that made it, as of ``commits_of``."""

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from the others of its study."""
        return self.experiment, self.seed


@dataclass(frozen=True)
class Record:
    """The numbers that one machine has made of a study."""

    machine: str
    date: str
    """When it was written last."""
    runs: list[RunResult]

    @property
    def file(self) -> str:
        """The name of its file.

        Example: ``amd-epyc-9r14-bfloat16.json``
        """
        return f"{re.sub(r'[^a-z0-9]+', '-', self.machine.lower()).strip('-')}.json"

    def with_earlier(self, before: "Record") -> "Record":
        """With the runs of ``before`` that have not been made again."""
        runs = {run.key: run for run in (*before.runs, *self.runs)}
        return replace(self, runs=list(runs.values()))


_RECORD = TypeAdapter(Record)

Results: TypeAlias = pd.DataFrame
"""A row for each run, by (experiment, seed); a column for each number, such as
``last.reward/solution``, ``course.60`` or ``along.probe/names.60``, NaN where there is none; and
``untrained``, ``trained`` and ``gain``, the greedy accuracy in percent, with ``sampled_untrained``
and so on beside it, and the gains of the first agent alone: ``first_gain``, and in math
``first_math_gain``."""


def read_result(
    run: Path,
    experiment: Experiment,
    *,
    seed: int,
    answers: Metrics | None = None,
    habits: Mapping[str, Metrics] | None = None,
) -> RunResult:
    """The numbers of the finished run in the folder ``run``.

    Raises ValueError when it holds fewer than two validations.
    """
    rows = read_rows(run / "metrics.jsonl")
    validations = [row for row in rows if row.get(SAMPLED) is not None]
    steps = [row for row in rows if row["step"] > 0]
    if len(validations) < 2:
        raise ValueError(f"{run} holds {len(validations)} validations; two at least are compared")
    return RunResult(
        experiment=experiment.name,
        seed=seed,
        num_steps=validations[-1]["step"],
        seconds=seconds_of_rows(rows),
        before=_validation(validations[0]),
        after=_validation(validations[-1]),
        first=means(steps[:WINDOW]),
        last=means(steps[-WINDOW:]),
        course={row["step"]: row[GREEDY] for row in validations},
        answers=answers or {},
        stopped=stopping_step(run, rows),
        along=_along(rows, [row["step"] for row in validations]),
        habits=habits or {},
        commits=commits_of([run]),
    )


def _along(rows: Sequence[Row], steps: Sequence[int]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {key: {} for key in DRAWN}
    for before, step in zip([-1, *steps], steps, strict=False):
        for key, of_key in found.items():
            since = [row[key] for row in rows if before < row["step"] <= step and key in row]
            if values := [value for value in since if value is not None]:
                of_key[step] = fmean(values)
    return found


def means(steps: Sequence[Row]) -> Metrics:
    """Means of ``ALONG_TRAINING``; None of what no step has."""
    found = {key: [row[key] for row in steps if row.get(key) is not None] for key in ALONG_TRAINING}
    return {key: fmean(values) if values else None for key, values in found.items()}


def seconds_of_rows(rows: Sequence[Row]) -> float:
    """Time of all steps and validations of a run."""
    keys = ("time/step_s", "time/validation_s")
    return sum(row.get(key) or 0.0 for row in rows for key in keys)


def as_table(results: Iterable[RunResult]) -> Results:
    """The table of one run or more."""
    records = [_flat(asdict(result)) for result in results]
    table = pd.DataFrame(records).drop(columns="commits")
    table = table.set_index(["experiment", "seed"]).astype(float).sort_index()
    accuracies = {
        f"{prefix}{name}": 100 * table[f"{moment}.{key}"]
        for prefix, key in (("", GREEDY), ("sampled_", SAMPLED))
        for name, moment in (("untrained", "before"), ("trained", "after"))
    }
    table = table.assign(**accuracies)
    first = f"{FIRST_AGENT}{GREEDY}"
    gains = {"gain": GREEDY, "first_gain": first, "first_math_gain": f"{first}/math"}
    return table.assign(
        sampled_gain=table["sampled_trained"] - table["sampled_untrained"],
        **{
            name: 100 * (table[f"after.{key}"] - table[f"before.{key}"])
            for name, key in gains.items()
        },
    )


def write_record(folder: Path, record: Record) -> None:
    """Write the numbers of a machine, so that those of several can stand in one report."""
    write_text(folder / record.file, json.dumps(asdict(record), indent=1) + "\n")


def read_records(folder: Path) -> dict[str, Record]:
    """The numbers of every machine, by the name of their file.

    Raises FileError when one is damaged.
    """
    remedy = "Restore it, or leave it out"
    paths = [path for path in sorted(folder.glob("*.json")) if path.name != FROZEN]
    return {path.name: read_json(path, _RECORD, remedy=remedy) for path in paths}


def _validation(row: Row) -> Metrics:
    return {key: value for key, value in row.items() if key.startswith(OF_VALIDATIONS)}


def _flat(record: Mapping[Any, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": part for key, part in _flat(value).items()}
        else:
            flat[name] = value
    return flat
