"""The figures of a report, drawn from the runs."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from comas.reproduction.experiments import MAIN, Plan
from comas.reproduction.results import PROBED, WITHOUT_ANSWERS, Results
from comas.reproduction.runs import PlannedRun
from comas.run.records import Row, read_rows
from comas.utils.files import explaining_errors

COMPARED = (MAIN, "no_evaluation", "no_scoring", "muted")
"""Experiments whose rewards along training are drawn together."""

NUM_COLUMNS = 5
PANEL = 2.6
"""Width and height of one of several panels, in inches."""

SMOOTHING_STEPS = 5
"""What differs from step to step is shown as the mean of so many steps."""

Points = list[tuple[int, float]]
"""(step, value), without the steps that have none."""
Runs = dict[str, list[list[Row]]]
"""The steps of every run, by experiment."""


def draw_figures(
    folder: Path, plan: Plan, finished: Mapping[PlannedRun, Path], results: Results
) -> list[str]:
    """Draw every figure into ``folder``, from the folders of finished runs; returns their names."""
    rows = _rows(finished)
    figures = {
        "dynamics.png": _dynamics(rows),
        "ablations.png": _ablations(rows),
        "agents.png": _agents(plan, results),
    }
    known = results.index.unique("experiment")
    long = [e.name for e in plan.experiments if e.kind == "long" and e.name in known]
    if long:
        figures["long.png"] = _long(results, long)
    return _save(folder, figures)


def draw_courses(
    folder: Path, plan: Plan, finished: Mapping[PlannedRun, Path], results: Results
) -> list[str]:
    """Likewise, for experiments that are looked at along training, from their numbers alone: a
    panel for each."""
    known = results.index.unique("experiment")
    names = [experiment.name for experiment in plan.experiments if experiment.name in known]
    judges, instruments = (
        {label: f"along.{key}." for label, key in keys.items()}
        for keys in (PROBED, WITHOUT_ANSWERS)
    )
    accuracy = {"greedy accuracy": "course."}
    return _save(
        folder,
        {
            "accuracy.png": _panels(results, names, accuracy, beside=plan.main),
            "judges.png": _panels(results, names, judges),
            "instruments.png": _panels(results, names, instruments),
        },
    )


def _rows(finished: Mapping[PlannedRun, Path]) -> Runs:
    rows: Runs = defaultdict(list)
    for run, path in finished.items():
        rows[run.experiment.name].append(read_rows(path / "metrics.jsonl"))
    return rows


def _save(folder: Path, figures: Mapping[str, Figure]) -> list[str]:
    for name, figure in figures.items():
        with explaining_errors(folder / name):
            figure.savefig(folder / name, dpi=120)
    return list(figures)


def _panels(
    results: Results, names: Sequence[str], columns: Mapping[str, str], *, beside: str | None = None
) -> Figure:
    """Some metrics (label -> beginning of the columns that hold it by step) along the runs of each
    experiment, in one panel for each; with those of one experiment, ``beside``, in grey in all."""
    num_columns = min(NUM_COLUMNS, len(names))
    num_rows = -(-len(names) // num_columns)
    figure = Figure(figsize=(PANEL * num_columns, PANEL * num_rows), layout="constrained")
    figure.supxlabel("step", fontsize="medium")
    panels = figure.subplots(num_rows, num_columns, squeeze=False, sharex=True, sharey=True).flat
    for name, axes in zip(names, panels, strict=False):
        for number, (label, beginning) in enumerate(columns.items()):
            if beside is not None and beside in names:
                _band(axes, _by_step(results, beside, beginning), label=beside, color="0.6")
            seeds = _by_step(results, name, beginning)
            _band(axes, seeds, label=label, color=f"C{number}")
        axes.set_title(name, fontsize="medium")
    for axes in panels:
        axes.set_axis_off()
    first = figure.axes[0]
    first.set_ylim(0, 1)
    lines, labels = first.get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper center", ncols=max(1, num_columns - 1))
    return figure


def _by_step(results: Results, name: str, beginning: str) -> pd.DataFrame:
    """A row for each seed of an experiment, a column for each step."""
    found = results.loc[name].filter(regex=f"^{re.escape(beginning)}")
    return found.rename(columns=lambda column: int(column.removeprefix(beginning)))


def _dynamics(rows: Runs) -> Figure:
    """Reward and response length of every agent along training (the paper's figure 3)."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    reward, length = figure.subplots(1, 2)
    of_main = rows.get(MAIN, [])
    for agent in range(max(map(num_agents, of_main), default=0)):
        style: dict[str, Any] = {"label": f"agent {agent}", "color": f"C{agent}"}
        keys = [f"agent_{agent}/reward/{role}" for role in ("solution", "evaluation")]
        _smooth_band(reward, [_mean_points(run, keys) for run in of_main], **style)
        lengths = [points(run, f"agent_{agent}/response_length") for run in of_main]
        _smooth_band(length, lengths, **style)
    reward.set_ylim(0, 1)
    reward.set_title("Mean reward of solutions and evaluations")
    length.set_title("Mean response length (tokens)")
    finish(reward)
    finish(length)
    return figure


def _ablations(rows: Runs) -> Figure:
    """Reward of solutions along training, by experiment (the paper's figure 4)."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    reward, accuracy = figure.subplots(1, 2)
    for number, name in enumerate(n for n in COMPARED if n in rows):
        style: dict[str, Any] = {"label": name, "color": f"C{number}"}
        _smooth_band(reward, [points(run, "reward/solution") for run in rows[name]], **style)
        _smooth_band(accuracy, [points(run, "train/accuracy") for run in rows[name]], **style)
    reward.set_ylim(0, 1)
    reward.set_title("Mean reward of solutions")
    accuracy.set_title("Accuracy on training questions, by the verifier")
    finish(reward)
    finish(accuracy)
    return figure


def _long(results: Results, names: Sequence[str]) -> Figure:
    """Greedy held-out accuracy along the long runs."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    for number, name in enumerate(names):
        _band(axes, _by_step(results, name, "course."), label=name, color=f"C{number}")
    axes.set_ylim(0, 1)
    axes.set_title("Held-out accuracy, greedy")
    finish(axes)
    return figure


def _agents(plan: Plan, results: Results) -> Figure:
    """Trained accuracy by number of agents and by diversity (the paper's figure 5)."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    for axes, names, title in zip(
        figure.subplots(1, 2),
        (plan.by_number, plan.by_diversity),
        ("By number of agents", "Like and unlike agents"),
        strict=True,
    ):
        known = [name for name in names if name in results.index.unique("experiment")]
        for position, name in enumerate(known):
            trained = list(results.loc[name, "trained"])
            spread = stdev(trained) if len(trained) > 1 else 0
            axes.bar(position, fmean(trained), yerr=spread, width=0.6, color=f"C{position}")
        axes.set_xticks(range(len(known)), known)
        axes.set_ylabel("held-out accuracy, greedy, %")
        axes.set_title(title)
    return figure


def _mean_points(rows: Sequence[Row], keys: Sequence[str]) -> Points:
    found = [(row["step"], [row[key] for key in keys if row.get(key) is not None]) for row in rows]
    return [(step, fmean(values)) for step, values in found if values]


def _smooth_band(axes: Axes, of_seeds: Sequence[Points], *, label: str, color: str) -> None:
    seeds = pd.DataFrame([dict(smoothed(of_seed)) for of_seed in of_seeds])
    _band(axes, seeds, label=label, color=color)


def _band(axes: Axes, seeds: pd.DataFrame, *, label: str, color: str) -> None:
    """The mean over seeds (rows) within the smallest and the largest of them, by step."""
    if not seeds.empty:
        seeds = seeds.sort_index(axis=1)
        axes.plot(seeds.columns, seeds.mean(), label=label, color=color)
        axes.fill_between(seeds.columns, seeds.min(), seeds.max(), color=color, alpha=0.15)


def points(rows: Sequence[Row], key: str) -> Points:
    """The values of ``key`` by step; null and missing ones are no points."""
    return [(row["step"], row[key]) for row in rows if row.get(key) is not None]


def smoothed(of_steps: Points) -> Points:
    """Each value as the mean of itself and those before it, ``SMOOTHING_STEPS`` in all.

    Example: (1, 0.0), (2, 1.0), (3, 0.5) gives (1, 0.0), (2, 0.5), (3, 0.5).
    """
    values = [value for _, value in of_steps]
    means = (fmean(values[max(0, i + 1 - SMOOTHING_STEPS) : i + 1]) for i in range(len(values)))
    return [(step, mean) for (step, _), mean in zip(of_steps, means, strict=True)]


def num_agents(rows: Sequence[Row]) -> int:
    """How many agents the metrics tell of."""
    keys = {key for row in rows for key in row}
    return next(agent for agent in count() if f"agent_{agent}/response_length" not in keys)


def finish(axes: Axes, *, has_legend: bool = True) -> None:
    """What all panels over steps have in common."""
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if has_legend and axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
