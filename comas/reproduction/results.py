"""The numbers of finished runs; those of a study are kept in a file per machine."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from comas.config import load
from comas.config.schema import Config
from comas.run.provenance import FILE, commit_of, read_processes
from comas.run.records import METRICS, Row, read_rows
from comas.types import Metrics
from comas.utils.files import read_json, write_text

WINDOW = 10
"""Steps whose mean is the value at the beginning or the end of a run."""


@dataclass(frozen=True)
class RunResult:
    """The result of one experiment with one seed."""

    experiment: str
    seed: int
    num_steps: int
    before: Metrics
    """The study's metrics at the beginning (see ``ends``); None if the run lacks one."""
    after: Metrics
    commits: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    """``Study.words`` of its experiment; empty before 0.17, which no report shows."""
    machine: str = ""
    """The machine of its record (see ``pooled``)."""

    def change(self, metric: str) -> float | None:
        """Return by how much ``metric`` rose; None if the run lacks it."""
        before, after = self.before.get(metric), self.after.get(metric)
        return None if before is None or after is None else after - before


@dataclass(frozen=True)
class Record:
    """The results of a study on one machine."""

    machine: str
    date: str
    runs: list[RunResult]

    @property
    def file(self) -> str:
        """The name of its file: ``amd-epyc-9r14-bfloat16.json``"""
        return f"{re.sub(r'[^a-z0-9]+', '-', self.machine.lower()).strip('-')}.json"


Results: TypeAlias = Mapping[str, Mapping[int, RunResult]]
"""Experiment -> seed -> result."""


def read_result(folder: Path, experiment: str, *, seed: int, metrics: Sequence[str]) -> RunResult:
    rows = read_rows(folder / METRICS)
    both = {metric: ends(rows, metric) for metric in metrics}
    return RunResult(
        experiment=experiment,
        seed=seed,
        num_steps=rows[-1]["step"],
        before={metric: before for metric, (before, _) in both.items()},
        after={metric: after for metric, (_, after) in both.items()},
        commits=list(dict.fromkeys(map(commit_of, read_processes(folder)))),
    )


def ends(rows: Sequence[Row], metric: str) -> tuple[float | None, float | None]:
    """Return a metric at the beginning and the end of a run: the first and last value if it was
    measured before step 1, as by validations, else the means over ``WINDOW`` steps (of a run of
    fewer than two windows: over each half)."""
    measured = [row for row in rows if metric in row]
    if measured and measured[0]["step"] == 0:
        return measured[0][metric], measured[-1][metric]
    steps = [row for row in rows if row["step"] > 0]
    num = max(1, min(WINDOW, len(steps) // 2))
    before, after = (
        [row[metric] for row in window if row.get(metric) is not None]
        for window in (steps[:num], steps[-num:])
    )
    return fmean(before) if before else None, fmean(after) if after else None


def machine_of(folder: Path) -> str:
    """Return the GPU on which the run in ``folder`` was finished, or the CPU if it used none."""
    if not (processes := read_processes(folder)):
        raise ValueError(f"{folder / FILE} is missing: restore it, or remove the run")
    uses_gpus = load(Config, folder / "config.yaml", []).cluster.device != "cpu"
    gpus: list[str] = processes[-1]["gpus"] if uses_gpus else []
    return gpus[0].partition(",")[0] if gpus else str(processes[-1]["cpu"])


def write_record(folder: Path, record: Record) -> None:
    """Write the results of a machine into the folder of a study."""
    numbers = asdict(record)
    for run in numbers["runs"]:
        del run["machine"]  # the record's
    write_text(folder / record.file, json.dumps(numbers, indent=1) + "\n")


def read_records(folder: Path) -> list[Record]:
    """Read the results of every machine in ``folder``. Raises FileError when one is damaged."""
    remedy = "Restore it, or leave it out"
    return [read_json(path, Record, remedy=remedy) for path in sorted(folder.glob("*.json"))]


def pooled(records: Sequence[Record], experiments: Iterable[str], seeds: Sequence[int]) -> Results:
    """Return the runs by experiment and seed; of a run on two machines, the first record's."""
    runs = {
        (run.experiment, run.seed): replace(run, machine=each.machine)
        for each in reversed(records)
        for run in each.runs
    }
    found = {
        name: {seed: runs[name, seed] for seed in seeds if (name, seed) in runs}
        for name in experiments
    }
    return {name: by_seed for name, by_seed in found.items() if by_seed}


def paired_runs(results: Results, name: str, other: str) -> list[tuple[RunResult, RunResult]]:
    """Pair the runs of two experiments by seed, if they were made on the same machine: models that
    the quick-start teaches on two machines differ."""
    ours, theirs = results.get(name, {}), results.get(other, {})
    both = [(run, theirs[seed]) for seed, run in ours.items() if seed in theirs]
    return [(one, two) for one, two in both if one.machine == two.machine]
