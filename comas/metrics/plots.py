"""``python -m comas.metrics.plots RUN [RUN ...]``: a run's figures, drawn from its metrics.jsonl.

Started by scripts/plot_run.sh; a training draws them at its end.
"""

import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from comas.files import blaming
from comas.metrics.reward_effectiveness import PREDICTS_CORRECT, SCORE_LABELS
from comas.run_directory.metrics_log import Row, read_rows
from comas.types import DOMAINS

SMOOTHING_STEPS = 5
"""What differs from step to step is shown as the mean of so many steps."""
TABLE_STEPS = 10
"""Last steps that the confusion table counts."""

Points = list[tuple[int, float]]
"""(step, value), without the steps that have none."""


def draw_plots(run: Path) -> list[Path]:
    """Draw the figures of the run folder ``run`` into its ``plots/``; returns their paths.

    Raises ValueError when ``run`` is no run folder, or holds no metrics yet.
    """
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise ValueError(f"{run} is no run directory: it has no metrics.jsonl. Try saves/latest")
    rows = read_rows(path)
    if not rows:
        raise ValueError(f"{path} holds no step yet: nothing to plot")
    folder = run / "plots"
    folder.mkdir(exist_ok=True)
    figures = {
        "training_dynamics.png": training_dynamics(rows),
        "reward_effectiveness.png": reward_effectiveness(rows),
    }
    for name, figure in figures.items():
        figure.suptitle(run.resolve().name, fontsize=9, color="grey")
        with blaming(folder / name):
            figure.savefig(folder / name, dpi=150)
    return [folder / name for name in figures]


def training_dynamics(rows: Sequence[Row]) -> Figure:
    """Accuracy, rewards and response lengths along training."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    accuracy, reward, length = figure.subplots(1, 3)

    _draw(accuracy, smoothed(points(rows, "train/accuracy")), "train", color="lightgrey")
    _draw(accuracy, points(rows, "validation/accuracy"), "held out", color="black", marker="o")
    discussed = points(rows, "validation/discussion/accuracy")
    _draw(accuracy, discussed, "held out, discussed", color="black", marker="s", linestyle=":")
    for domain in DOMAINS:
        key = f"validation/accuracy/{domain}"
        _draw(accuracy, points(rows, key), f"held out, {domain}", linewidth=1, marker=".")
    accuracy.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    accuracy.set_title("Accuracy, by the verifier")

    for agent in range(num_agents(rows)):
        prefix, color = f"agent_{agent}", f"C{agent}"
        solution = smoothed(points(rows, f"{prefix}/reward/solution"))
        evaluation = smoothed(points(rows, f"{prefix}/reward/evaluation"))
        _draw(reward, solution, f"agent {agent}", color=color)
        _draw(reward, evaluation, None, color=color, linestyle=":")
        lengths = smoothed(points(rows, f"{prefix}/response_length"))
        _draw(length, lengths, f"agent {agent}", color=color)
    reward.set_ylim(0, 1)
    reward.set_title("Mean reward: solutions (solid), evaluations (dotted)")
    length.set_title("Mean response length (tokens)")
    for axes in (accuracy, reward, length):
        finish(axes)
    return figure


def reward_effectiveness(rows: Sequence[Row]) -> Figure:
    """The reward as a prediction of correctness, by threshold, and the scorer's confusion table.

    Precision follows the share of correct solutions, so it stands beside that share and beside
    balanced accuracy, which does not follow it.
    """
    figure = Figure(figsize=(15, 4), layout="constrained")
    *panels, table = figure.subplots(1, len(PREDICTS_CORRECT) + 1)
    for axes, threshold in zip(panels, PREDICTS_CORRECT, strict=True):
        _draw_qualities(axes, rows, threshold)
    _draw_table(table, rows[-TABLE_STEPS:])
    return figure


def _draw_qualities(axes: Axes, rows: Sequence[Row], threshold: str) -> None:
    """Training as lines; held-out discussions, where there are any, as points."""
    share_correct = smoothed(points(rows, "train/accuracy"))
    _draw(axes, share_correct, "correct solutions", color="grey", linestyle="--")
    prefix = f"reward_effectiveness/{threshold}"
    for name in ("recall", "specificity", "precision"):
        _draw(axes, smoothed(points(rows, f"{prefix}/{name}")), name, linewidth=1)
    balanced = f"{prefix}/balanced_accuracy"
    _draw(axes, smoothed(points(rows, balanced)), "balanced accuracy", color="black")
    held_out = points(rows, f"validation/discussion/{balanced}")
    _draw(axes, held_out, "held out: balanced accuracy", color="black", marker="o", linestyle="")
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    score = threshold.replace("_", " ")
    axes.set_title(f'Reward {score} on as "correct" (mean of {SMOOTHING_STEPS} steps)')
    finish(axes)


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


def _draw(axes: Axes, of_steps: Points, label: str | None, **style: object) -> None:
    if of_steps:
        axes.plot(*zip(*of_steps, strict=True), label=label, **style)  # type: ignore[arg-type]


def _draw_table(axes: Axes, rows: Sequence[Row]) -> None:
    """Shares of correct and incorrect solutions among those that got each score."""
    truths = ("correct", "incorrect")
    counts = [
        [
            sum(row.get(f"scoring/confusion/{score}/{truth}") or 0 for row in rows)
            for truth in truths
        ]
        for score in SCORE_LABELS
    ]
    if not any(map(any, counts)):
        axes.set_axis_off()
        axes.set_title("No scorings")
        return
    shares = [[number / max(1, sum(row)) for number in row] for row in counts]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for i, row in enumerate(counts):
        for j, number in enumerate(row):
            color = "white" if shares[i][j] > 0.6 else "black"
            text = f"{number}\n{shares[i][j]:.0%}" if sum(row) else "0"
            axes.text(j, i, text, ha="center", va="center", color=color)
    axes.set_xticks(range(len(truths)), truths)
    axes.set_yticks(range(len(SCORE_LABELS)), [label.replace("_", " ") for label in SCORE_LABELS])
    first, last = rows[0]["step"], rows[-1]["step"]
    axes.set_title(f"Scorings of solutions, steps {first} to {last}")


def finish(axes: Axes) -> None:
    """What all panels over steps have in common."""
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)


def main(runs: Sequence[str]) -> int:
    """Draw the figures of every run; returns the process's exit status."""
    try:
        for run in runs:
            for path in draw_plots(Path(run)):
                sys.stdout.write(f"{path}\n")
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
