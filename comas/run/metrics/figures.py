"""A run's figures, drawn from the rows of its metrics.jsonl: for reports, wandb and TensorBoard."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from comas.run.metrics.meanings import meaning_of
from comas.run.metrics.reward_effectiveness import PREDICTS_CORRECT
from comas.run.records import Row
from comas.types import ALL_DOMAINS, ROLES

SMOOTHING_STEPS = 5
"""What differs from step to step is shown as the mean of so many steps, over each step."""
SMOOTHED = f"Lines are means of {SMOOTHING_STEPS} steps; each step is faint behind them."
PHASES = ("rollout", "update", "sync", "step")
"""Phases of a step, in order, and the whole: ``time/rollout_s`` and so on."""
INSTRUMENTS = {
    "Signs of collapse, without answers": (
        "reliability",
        "score_entropy",
        "commonest_evaluation",
        "diversity",
        "coupling",
    ),
    "Rewards against the verifier": ("noise", "skew", "self_bias"),
}
PROBES = {
    "Evaluators, asked about planted mistakes": ("names", "overlooks", "accuses"),
    "Scorers, asked about planted mistakes": ("accepts_true", "accepts_false", "accepts_approval"),
}

Points = list[tuple[int, float]]
"""(step, value), without the steps that have none."""


@dataclass(frozen=True)
class Line:
    """One line of a panel."""

    label: str
    points: Points
    metric: str = ""
    """What it shows; empty: something computed from several metrics."""

    @property
    def is_of_every_step(self) -> bool:
        """Whether it is smoothed: what is measured at validations is not."""
        return "validation/" not in self.metric and "probe/" not in self.metric


@dataclass(frozen=True)
class Panel:
    """One figure of a run."""

    title: str
    lines: Sequence[Line]
    is_share: bool = False
    """Whether values are shares, and so drawn in percent."""

    @property
    def meanings(self) -> dict[str, str]:
        """What lines show, by their labels, or by "" where all show the same."""
        found = {line.label: meaning_of(line.metric) for line in self.lines}
        known = {label: meaning.tooltip for label, meaning in found.items() if meaning is not None}
        texts = set(known.values())
        return {"": texts.pop()} if len(texts) == 1 else known

    @property
    def is_smoothed(self) -> bool:
        return any(line.is_of_every_step for line in self.lines)


def run_panels(rows: Sequence[Row]) -> list[Panel]:
    """Every figure of a run that has something to show."""
    panels = (
        *_accuracies(rows),
        *(
            Panel(f"Reward of {role}s", _of_agents(rows, f"reward/{role}"))
            for role in ROLES
            if any(f"reward/{role}" in row for row in rows)
        ),
        *(_effectiveness(rows, threshold) for threshold in PREDICTS_CORRECT),
        *(
            Panel(title, _of_metrics(rows, *(f"probe/{name}" for name in names)), is_share=True)
            for title, names in PROBES.items()
        ),
        Panel("Entropy (nats per token)", _of_agents(rows, "policy/entropy")),
        Panel("Divergence from the reference (nats per token)", _of_agents(rows, "policy/kl")),
        Panel("Response length (tokens)", _of_agents(rows, "response_length")),
        *(
            Panel(title, _of_metrics(rows, *(f"instruments/{name}" for name in names)))
            for title, names in INSTRUMENTS.items()
        ),
        Panel("Seconds per step", _of_metrics(rows, *(f"time/{phase}_s" for phase in PHASES))),
        Panel("Sampled tokens per second of rollout", [Line("tokens per second", _speed(rows))]),
    )
    shown = (replace(p, lines=[line for line in p.lines if line.points]) for p in panels)
    return [panel for panel in shown if panel.lines]


def _accuracies(rows: Sequence[Row]) -> Iterator[Panel]:
    """By the verifier: in training and on held-out questions, by domain and by agent."""
    greedy, sampled = "validation/greedy/accuracy", "validation/accuracy"
    ways = (greedy, sampled, "validation/discussion/accuracy", "train/accuracy")
    yield Panel("Accuracy", _of_metrics(rows, *ways), is_share=True)
    held_out, how = (greedy, "greedy") if points(rows, greedy) else (sampled, "sampled")
    by_domain = [_line(rows, f"{held_out}/{domain}", domain) for domain in ALL_DOMAINS]
    yield Panel(f"Held-out accuracy by domain, {how}", by_domain, is_share=True)
    yield Panel(f"Held-out accuracy by agent, {how}", _of_agents(rows, held_out), is_share=True)


def _effectiveness(rows: Sequence[Row], threshold: str) -> Panel:
    """The reward as a prediction of correctness. Precision follows the share of correct solutions,
    so it stands beside that share and beside balanced accuracy, which does not follow it."""
    prefix = f"reward_effectiveness/{threshold}"
    balanced = f"validation/discussion/{prefix}/balanced_accuracy"
    names = ("balanced_accuracy", "recall", "specificity", "precision")
    lines = [
        *_of_metrics(rows, *(f"{prefix}/{name}" for name in names)),
        _line(rows, balanced, "balanced accuracy, held out"),
        _line(rows, "train/accuracy", "correct solutions"),
    ]
    return Panel(f'A reward {threshold.replace("_", " ")} on, read as "correct"', lines, True)


def _speed(rows: Sequence[Row]) -> Points:
    return [
        (row["step"], row["tokens/response"] / row["time/rollout_s"])
        for row in rows
        if row.get("time/rollout_s")
    ]


def _line(rows: Sequence[Row], metric: str, label: str) -> Line:
    return Line(label, points(rows, metric), metric)


def _of_metrics(rows: Sequence[Row], *metrics: str) -> list[Line]:
    """A line of each, under the name that it has in a legend."""
    named = [(metric, meaning_of(metric)) for metric in metrics]
    return [_line(rows, metric, m.label) for metric, m in named if m is not None]


def _of_agents(rows: Sequence[Row], key: str) -> list[Line]:
    """``agent_<i>/<key>`` of every agent."""
    agents = range(num_agents(rows))
    return [_line(rows, f"agent_{agent}/{key}", f"agent {agent}") for agent in agents]


def drawn(panel: Panel) -> Figure:
    """The panel without its title: wherever it is shown it has a caption."""
    figure = Figure(figsize=(5.2, 2.9 + 0.2 * len(panel.lines)), layout="constrained")
    axes = figure.subplots()
    for number, line in enumerate(panel.lines):
        style = {"color": f"C{number}", "label": line.label}
        if line.is_of_every_step:
            axes.plot(*zip(*line.points, strict=True), color=f"C{number}", alpha=0.3, linewidth=0.8)
            axes.plot(*zip(*smoothed(line.points), strict=True), **style)  # type: ignore[arg-type]
        else:
            axes.plot(*zip(*line.points, strict=True), marker=".", **style)  # type: ignore[arg-type]
    if panel.is_share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    finish(axes, has_legend=False)
    if len(panel.lines) > 1:
        figure.legend(loc="outside lower left", frameon=False, fontsize=9)
    return figure


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
