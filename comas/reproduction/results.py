"""The numbers of a finished run, and those of a machine as a file."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, TypeAlias

import pandas as pd
from annotated_types import MinLen
from pydantic import TypeAdapter

from comas.reproduction.experiments import Experiment
from comas.run.metrics.seed_summary import read_accuracies
from comas.run.records import Row, read_rows
from comas.utils.files import read_json, write_text

WINDOW = 10
"""Steps at either end of a run whose mean stands for its beginning and its end."""
QUALITIES = ("accuracy", "balanced_accuracy", "precision", "recall", "specificity")


@dataclass(frozen=True)
class Ends:
    """A quantity at the beginning and at the end of a run; None where there is none."""

    first: float | None
    last: float | None


@dataclass(frozen=True)
class RunResult:
    """What one experiment showed with one seed."""

    experiment: str
    seed: int
    num_steps: int
    untrained: float
    """Held-out accuracy before training, in percent, each agent answering alone."""
    trained: float
    """The same after it."""
    solution_reward: Ends
    reward: Ends
    """Mean over solutions and evaluations."""
    response_length: Ends
    """In tokens."""
    effectiveness: Mapping[str, Ends]
    """Each quality of the reward as a prediction of correctness from score 2 on."""
    seconds: float
    """Time of all steps and validations, without the start."""


@dataclass(frozen=True)
class _Record:
    """A file of results."""

    machine: str
    date: str
    runs: Annotated[list[RunResult], MinLen(1)]


_RECORD = TypeAdapter(_Record)

Results: TypeAlias = pd.DataFrame
"""A row for each run, by (experiment, seed), and a column for each number: ``trained``, ``gain``,
``reward.last``, ``effectiveness.recall.first`` and so on; NaN where there is none."""


def read_result(run: Path, experiment: Experiment, *, seed: int) -> RunResult:
    """The numbers of the finished run in the folder ``run``.

    Raises ValueError when it holds fewer than two validations.
    """
    accuracies = read_accuracies(run)
    rows = read_rows(run / "metrics.jsonl")
    steps = [row for row in rows if row["step"] > 0]
    prefix = "reward_effectiveness/from_score_2"
    return RunResult(
        experiment=experiment.name,
        seed=seed,
        num_steps=accuracies[-1][0],
        untrained=100 * accuracies[0][1],
        trained=100 * accuracies[-1][1],
        solution_reward=ends(steps, "reward/solution"),
        reward=ends(steps, "reward/solution", "reward/evaluation"),
        response_length=ends(steps, "response_length"),
        effectiveness={name: ends(steps, f"{prefix}/{name}") for name in QUALITIES},
        seconds=seconds_of_rows(rows),
    )


def ends(steps: Sequence[Row], *keys: str) -> Ends:
    """Mean of ``keys`` over the first and the last steps, ``WINDOW`` each, without missing values.

    Example: with a window of 1, rows of 0.2, 0.4 and 0.9 give ``Ends(0.2, 0.9)``.
    """
    return Ends(_mean(steps[:WINDOW], keys), _mean(steps[-WINDOW:], keys))


def seconds_of_rows(rows: Sequence[Row]) -> float:
    """Time of all steps and validations of a run."""
    keys = ("time/step_s", "time/validation_s")
    return sum(row.get(key) or 0.0 for row in rows for key in keys)


def as_table(results: Iterable[RunResult]) -> Results:
    """The table of one run or more, with the gain in points of accuracy beside their numbers."""
    runs = pd.json_normalize([asdict(result) for result in results])
    table = runs.set_index(["experiment", "seed"]).astype(float).sort_index()
    return table.assign(gain=table["trained"] - table["untrained"])


def write_results(path: Path, results: Iterable[RunResult], *, machine: str, date: str) -> None:
    """Write the numbers of a machine, so that those of several can stand in one report."""
    record = _Record(machine, date, list(results))
    write_text(path, json.dumps(asdict(record), indent=1) + "\n")


def read_results(path: Path) -> tuple[str, Results]:
    """(machine, its results) from a file of ``write_results``.

    Raises FileError when it is damaged.
    """
    record = read_json(path, _RECORD, remedy="Restore it, or leave it out")
    return record.machine, as_table(record.runs)


def _mean(rows: Sequence[Row], keys: Sequence[str]) -> float | None:
    values = [row[key] for row in rows for key in keys if row.get(key) is not None]
    return fmean(values) if values else None
