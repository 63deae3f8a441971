"""Accuracies as a figure: one panel per setup, a group of bars per benchmark, a bar per row."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from comas.utils.files import explaining_errors
from comas.verification import Grader
from evaluation.accuracy import Row
from evaluation.results import Column
from evaluation.tables import benchmarks_of, setups_of

GRADER: Grader = "strict"
GROUP_WIDTH = 0.8
"""Share of the distance between two groups of bars."""
PANEL_HEIGHT = 2.8
BAR_WIDTH_INCHES = 0.22


def draw_accuracies(rows: Sequence[Row], path: Path) -> None:
    """Draw the accuracies of ``rows`` (strict grader) into the image file ``path``.

    Error bars are 95 % bootstrap intervals over tasks, of each accuracy by itself: subjects with
    the same tasks may differ significantly even where their intervals overlap.

    Raises OSError when the file cannot be written.
    """
    with explaining_errors(path):
        accuracy_figure(rows).savefig(path, dpi=150)


def accuracy_figure(rows: Sequence[Row]) -> Figure:
    """The figure of ``draw_accuracies``."""
    setups, benchmarks = setups_of(rows), benchmarks_of(rows)
    width = max(6.0, 2 + BAR_WIDTH_INCHES * (len(rows) + 1) * len(benchmarks))
    height = 1.2 + PANEL_HEIGHT * len(setups)
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(len(setups), 1, squeeze=False)[:, 0]
    for axes, setup in zip(panels, setups, strict=True):
        _draw_panel(axes, rows, setup=setup, benchmarks=benchmarks)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    figure.suptitle(
        "Accuracy (%), strict grader, with 95 % bootstrap intervals over tasks",
        fontsize=9,
        color="grey",
    )
    return figure


def _draw_panel(axes: Axes, rows: Sequence[Row], *, setup: str, benchmarks: Sequence[str]) -> None:
    bar = GROUP_WIDTH / len(rows)
    for i, row in enumerate(rows):
        found = [
            (x, accuracy)
            for x, benchmark in enumerate(benchmarks)
            if (accuracy := row.accuracies.get((GRADER, Column(setup, benchmark)))) is not None
        ]
        heights = [100 * accuracy.value for _, accuracy in found]
        below = [max(0.0, 100 * (accuracy.value - accuracy.interval[0])) for _, accuracy in found]
        above = [max(0.0, 100 * (accuracy.interval[1] - accuracy.value)) for _, accuracy in found]
        axes.bar(
            [x + (i - (len(rows) - 1) / 2) * bar for x, _ in found],
            heights,
            bar,
            yerr=(below, above),
            label=row.label,
            color=f"C{i}",
            error_kw={"linewidth": 0.8, "capsize": 1.5},
        )
    axes.set_title(setup)
    axes.set_xticks(range(len(benchmarks)), benchmarks)
    axes.set_ylim(0, 100)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
