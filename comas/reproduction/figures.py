"""The figures of a report, drawn from the runs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from comas.reproduction.experiments import MAIN, Plan
from comas.reproduction.results import GREEDY, OF_VALIDATIONS, Results
from comas.reproduction.runs import PlannedRun
from comas.run.metrics.figures import Points, finish, num_agents, points, smoothed
from comas.run.records import Row, read_rows
from comas.utils.files import explaining_errors

COMPARED = (MAIN, "no_evaluation", "no_scoring", "muted")
"""Experiments whose rewards along training are drawn together."""

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
NUM_COLUMNS = 5

Runs = dict[str, list[list[Row]]]
"""The steps of every run, by experiment."""


def draw_figures(
    folder: Path, plan: Plan, finished: Mapping[PlannedRun, Path], results: Results
) -> list[str]:
    """Draw every figure into ``folder``, from the folders of finished runs; returns their names."""
    rows = _rows(finished, since=1)
    figures = {
        "dynamics.png": _dynamics(rows),
        "ablations.png": _ablations(rows),
        "agents.png": _agents(plan, results),
    }
    long = [experiment.name for experiment in plan.experiments if experiment.kind == "long"]
    if any(name in rows for name in long):
        figures["long.png"] = _long(rows, long)
    return _save(folder, figures)


def draw_courses(
    folder: Path, plan: Plan, finished: Mapping[PlannedRun, Path], results: Results
) -> list[str]:
    """Likewise, for experiments that are looked at along training: a panel for each."""
    rows = _rows(finished, since=0)
    names = [experiment.name for experiment in plan.experiments if experiment.name in rows]
    return _save(
        folder,
        {
            "accuracy.png": _panels(rows, names, {"greedy accuracy": GREEDY}, beside=plan.main),
            "judges.png": _panels(rows, names, PROBED),
            "instruments.png": _panels(rows, names, WITHOUT_ANSWERS),
        },
    )


def _rows(finished: Mapping[PlannedRun, Path], *, since: int) -> Runs:
    rows: Runs = defaultdict(list)
    for run, path in finished.items():
        steps = [row for row in read_rows(path / "metrics.jsonl") if row["step"] >= since]
        rows[run.experiment.name].append(steps)
    return rows


def _save(folder: Path, figures: Mapping[str, Figure]) -> list[str]:
    for name, figure in figures.items():
        with explaining_errors(folder / name):
            figure.savefig(folder / name, dpi=120)
    return list(figures)


def _panels(
    rows: Runs, names: Sequence[str], keys: Mapping[str, str], *, beside: str | None = None
) -> Figure:
    """Some metrics (label -> key) along the runs of each experiment, in one panel for each; with
    those of one experiment, ``beside``, in grey in all of them."""
    num_rows = -(-len(names) // NUM_COLUMNS)
    figure = Figure(figsize=(13, 2.6 * num_rows), layout="constrained")
    panels = figure.subplots(num_rows, NUM_COLUMNS, squeeze=False, sharex=True, sharey=True).flat
    for name, axes in zip(names, panels, strict=False):
        for number, (label, key) in enumerate(keys.items()):
            smooth = not key.startswith(OF_VALIDATIONS)
            if beside in rows:
                of_seeds = [points(run, key) for run in rows[beside]]
                _band(axes, of_seeds, label=beside, color="0.6", smooth=smooth)
            of_seeds = [points(run, key) for run in rows[name]]
            _band(axes, of_seeds, label=label, color=f"C{number}", smooth=smooth)
        axes.set_title(name, fontsize="medium")
    for axes in panels:
        axes.set_axis_off()
    first = figure.axes[0]
    first.set_ylim(0, 1)
    if first.has_data():
        first.legend(fontsize="small")
    return figure


def _dynamics(rows: Runs) -> Figure:
    """Reward and response length of every agent along training (the paper's figure 3)."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    reward, length = figure.subplots(1, 2)
    of_main = rows.get(MAIN, [])
    for agent in range(max(map(num_agents, of_main), default=0)):
        style: dict[str, Any] = {"label": f"agent {agent}", "color": f"C{agent}"}
        keys = [f"agent_{agent}/reward/{role}" for role in ("solution", "evaluation")]
        _band(reward, [_mean_points(run, keys) for run in of_main], **style)
        _band(length, [points(run, f"agent_{agent}/response_length") for run in of_main], **style)
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
        _band(reward, [points(run, "reward/solution") for run in rows[name]], **style)
        _band(accuracy, [points(run, "train/accuracy") for run in rows[name]], **style)
    reward.set_ylim(0, 1)
    reward.set_title("Mean reward of solutions")
    accuracy.set_title("Accuracy on training questions, by the verifier")
    finish(reward)
    finish(accuracy)
    return figure


def _long(rows: Runs, names: Sequence[str]) -> Figure:
    """Greedy held-out accuracy along the long runs."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    for number, name in enumerate(name for name in names if name in rows):
        of_seeds = [points(run, GREEDY) for run in rows[name]]
        _band(axes, of_seeds, label=name, color=f"C{number}", smooth=False)
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


def _band(
    axes: Axes, of_seeds: Sequence[Points], *, label: str, color: str, smooth: bool = True
) -> None:
    """The mean over seeds within the smallest and the largest of them."""
    drawn = [dict(smoothed(of_seed) if smooth else of_seed) for of_seed in of_seeds]
    seeds = pd.DataFrame(drawn).sort_index(axis=1)
    if not seeds.empty:
        axes.plot(seeds.columns, seeds.mean(), label=label, color=color)
        axes.fill_between(seeds.columns, seeds.min(), seeds.max(), color=color, alpha=0.15)
