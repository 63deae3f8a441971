"""A run's figures, drawn from the rows of its metrics.jsonl: for reports, wandb and TensorBoard."""

from collections.abc import Sequence
from itertools import count
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from comas.run.metrics.reward_effectiveness import PREDICTS_CORRECT, SCORE_LABELS
from comas.run.records import Row
from comas.types import ALL_DOMAINS, ROLES

SMOOTHING_STEPS = 5
"""What differs from step to step is shown as the mean of so many steps."""
TABLE_STEPS = 10
"""Last steps that the confusion table counts."""
PHASES = ("rollout", "update", "sync")
"""Phases of a step, in order: ``time/rollout_s`` and so on."""

Points = list[tuple[int, float]]
"""(step, value), without the steps that have none."""


def run_figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Every figure of a run, by its title."""
    return {
        "Accuracy by domain and agent": accuracy(rows),
        "Reward by role and agent": rewards(rows),
        "Reward effectiveness": reward_effectiveness(rows),
        **({"Probe of the judges": probe(rows)} if has_probe(rows) else {}),
        "Entropy, divergence and response length": policies(rows),
        "Instruments of collapse": collapse(rows),
        "Time": times(rows),
    }


def accuracy(rows: Sequence[Row]) -> Figure:
    """By the verifier: in training and on held-out questions, by domain and by agent."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    by_domain, by_agent = figure.subplots(1, 2, sharey=True)
    for axes in (by_domain, by_agent):
        _draw(axes, smoothed(points(rows, "train/accuracy")), "train", color="lightgrey")
        _draw(axes, points(rows, "validation/accuracy"), "held out", color="black", marker="o")
        greedy = points(rows, "validation/greedy/accuracy")
        _draw(axes, greedy, "held out, greedy", color="black", marker="v", linestyle="--")
    discussed = points(rows, "validation/discussion/accuracy")
    _draw(by_domain, discussed, "held out, discussed", color="black", marker="s", linestyle=":")
    for number, domain in enumerate(ALL_DOMAINS):
        in_training = smoothed(points(rows, f"train/accuracy/{domain}"))
        _draw(by_domain, in_training, None, color=f"C{number}", linestyle=":", linewidth=1)
        held_out = points(rows, f"validation/accuracy/{domain}")
        _draw(by_domain, held_out, f"held out, {domain}", color=f"C{number}", marker=".")
    for agent in range(num_agents(rows)):
        held_out = points(rows, f"agent_{agent}/validation/accuracy")
        _draw(by_agent, held_out, f"held out, agent {agent}", color=f"C{agent}", marker=".")
    by_domain.set_title("By domain: held out (points), training (dotted)")
    by_agent.set_title("By agent")
    for axes in (by_domain, by_agent):
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        finish(axes)
    return figure


def rewards(rows: Sequence[Row]) -> Figure:
    """The mean reward in each role that somebody had."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    known = [role for role in ROLES if any(f"reward/{role}" in row for row in rows)] or ROLES
    panels = figure.subplots(1, len(known), sharey=True, squeeze=False)[0]
    for axes, role in zip(panels, known, strict=True):
        _draw_agents(axes, rows, f"reward/{role}")
        axes.set_title(f"Mean reward of {role}s")
        finish(axes)
    return figure


def has_probe(rows: Sequence[Row]) -> bool:
    """Whether judges were asked about planted solutions."""
    return any("probe/names" in row for row in rows)


def probe(rows: Sequence[Row]) -> Figure:
    """What judges make of planted solutions: what they should do, and what they should not."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    evaluators, scorers = figure.subplots(1, 2, sharey=True)
    for axes, role, shown in (
        (evaluators, "Evaluators", ("names", "overlooks", "accuses")),
        (scorers, "Scorers", ("accepts_true", "accepts_false", "accepts_approval")),
    ):
        for number, measure in enumerate(shown):
            label = measure.replace("_", " ")
            _draw(axes, points(rows, f"probe/{measure}"), label, color=f"C{number}", marker=".")
        axes.set_title(f"{role}, asked about planted solutions")
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        finish(axes)
    return figure


def policies(rows: Sequence[Row]) -> Figure:
    """What becomes of each agent's distribution and of the length of what it says."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    titles = {
        "policy/entropy": "Entropy (nats per token)",
        "policy/kl": "Divergence from the reference (nats per token)",
        "response_length": "Mean response length (tokens)",
    }
    panels = figure.subplots(1, len(titles))
    for axes, (key, title) in zip(panels, titles.items(), strict=True):
        _draw_agents(axes, rows, key)
        axes.set_title(title)
        finish(axes)
    return figure


def collapse(rows: Sequence[Row]) -> Figure:
    """What a society that rewards itself for less and less shows: left without answers, right by
    what the verifier says."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    panels = figure.subplots(1, 2)
    titles = {
        "Without answers": (
            "reliability",
            "score_entropy",
            "commonest_evaluation",
            "diversity",
            "coupling",
        ),
        "Rewards against the verifier": ("noise", "skew", "self_bias"),
    }
    for axes, (title, names) in zip(panels, titles.items(), strict=True):
        for number, name in enumerate(names):
            of_steps = smoothed(points(rows, f"instruments/{name}"))
            _draw(axes, of_steps, name.replace("_", " "), color=f"C{number}")
        axes.set_title(f"{title} (mean of {SMOOTHING_STEPS} steps)")
        finish(axes)
    return figure


def times(rows: Sequence[Row]) -> Figure:
    """The seconds of every step by phase, and the tokens that were sampled in one of rollout."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    seconds, speed = figure.subplots(1, 2)
    steps = [row for row in rows if row.get("time/step_s") is not None]
    if steps:
        of_phases = [[row[f"time/{phase}_s"] for row in steps] for phase in PHASES]
        seconds.stackplot([row["step"] for row in steps], of_phases, labels=PHASES)
        per_second = [
            (row["step"], row["tokens/response"] / row["time/rollout_s"]) for row in steps
        ]
        _draw(speed, smoothed(per_second), None, color="C0")
    seconds.set_title("Seconds per step")
    speed.set_title(f"Sampled tokens per second of rollout (mean of {SMOOTHING_STEPS} steps)")
    finish(seconds)
    finish(speed)
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


def _draw_agents(axes: Axes, rows: Sequence[Row], key: str) -> None:
    """``agent_<i>/<key>`` of every agent, smoothed."""
    for agent in range(num_agents(rows)):
        of_agent = smoothed(points(rows, f"agent_{agent}/{key}"))
        _draw(axes, of_agent, f"agent {agent}", color=f"C{agent}")


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
