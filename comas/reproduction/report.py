"""The report of a reproduction: claims, tables and figures as one Markdown page."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev

import pandas as pd
from scipy import stats

from comas.reproduction.claims import NOISE, Claim, claims_of, gains_by_seed, judge
from comas.reproduction.experiments import MAIN, Experiment, Plan
from comas.reproduction.results import QUALITIES, WINDOW, Results

CONFIDENCE = 0.95

LIMITS = f"""\
Each agent answers the held-out questions alone; the verifier judges, and no run but the upper bound
and MAPoRL learns from it. A rise of up to {NOISE:g} points counts as none. Intervals are over
seeds (Student's t, {CONFIDENCE:.0%}), which are few: they are wide, and a difference whose interval
holds 0 is no difference that this report can show.

The agents of the quick-start are tiny, and were taught to solve, criticise and score before the
runs, with habits of making mistakes that training can remove. Their scorers were taught to believe
an approval, to check what an evaluation names, and to find nothing where nothing is named. So that
criticism matters is built in: what the runs show is whether the loop carries it into the weights,
what each ablation then loses, and that no control learns. They cannot show that criticism matters
to a model that was trained on the world's text, nor the paper's benchmarks or times on GPUs."""


def write_report(
    results: Results,
    plan: Plan,
    *,
    seeds: Sequence[int],
    heading: str,
    elsewhere: Mapping[str, Results],
    figures: Iterable[str],
) -> str:
    """The page.

    Args:
        seeds: those that each experiment is to be run with.
        heading: how, where and when the runs were made.
        elsewhere: results of other machines, by the name of the machine.
        figures: names of image files beside the page.
    """
    found = results.index.unique("experiment")
    known = [experiment for experiment in plan.experiments if experiment.name in found]
    sections = [
        "# Reproduction",
        heading,
        LIMITS,
        "## Claims of the paper",
        claims_table(claims_of(plan), results, seeds=seeds),
        "## Held-out accuracy",
        accuracy_table(results, known),
        "## Reward effectiveness",
        "The reward of a solution, read as a prediction of its correctness from score 2 on: mean "
        f"of the first {WINDOW} steps -> mean of the last {WINDOW}, in percent.",
        effectiveness_table(results, known),
        "## Other machines",
        machines_table(results, elsewhere, known),
        "## Figures",
        *(f"![{name}]({name})" for name in figures),
    ]
    return "\n\n".join(sections) + "\n"


def claims_table(claims: Sequence[Claim], results: Results, *, seeds: Sequence[int]) -> str:
    """Every claim with its rule and what the numbers say."""
    rows = []
    for claim in claims:
        found = judge(claim, results, seeds=seeds)
        rows.append([claim.statement, claim.rule, f"**{found.outcome}**", found.evidence])
    return _table(["the paper says", "counts as reproduced when", "outcome", "numbers"], rows)


def accuracy_table(results: Results, experiments: Sequence[Experiment]) -> str:
    """Untrained and trained accuracy, and what CoMAS has more with the same seeds."""
    rows = []
    for experiment in experiments:
        runs = results.loc[experiment.name]
        more = ""
        if experiment.name != MAIN:
            ours, theirs = gains_by_seed(results, MAIN, experiment.name)
            more = with_interval(list(ours - theirs))
        rows.append(
            [
                f"{experiment.name} ({experiment.kind})",
                experiment.about,
                mean_and_spread(runs["untrained"]),
                mean_and_spread(runs["trained"]),
                mean_and_spread(runs["gain"], sign=True),
                more,
                str(len(runs)),
            ]
        )
    heads = [
        "experiment",
        "what it is",
        "untrained",
        "trained",
        "gain",
        "CoMAS gains more",
        "seeds",
    ]
    return _table(heads, rows)


def effectiveness_table(results: Results, experiments: Sequence[Experiment]) -> str:
    """How well the reward tells correct solutions from others, along training."""
    rows = []
    for experiment in experiments:
        runs = results.loc[experiment.name]
        cells = [_mean_ends(runs, f"effectiveness.{quality}") for quality in QUALITIES]
        rows.append([experiment.name, *cells])
    return _table(["experiment", *(name.replace("_", " ") for name in QUALITIES)], rows)


def machines_table(
    results: Results, elsewhere: Mapping[str, Results], experiments: Sequence[Experiment]
) -> str:
    """Trained accuracy on every machine, and how far the same seed moves between them."""
    if not elsewhere:
        return "These experiments have been run on this machine only."
    machines = {"this machine": results, **elsewhere}
    trained = pd.DataFrame({name: table["trained"] for name, table in machines.items()})
    rows = []
    for experiment in experiments:
        runs = trained.loc[experiment.name]
        cells = [mean_and_spread(runs[machine].dropna()) for machine in machines]
        rows.append([experiment.name, *cells, _largest_move(runs)])
    return _table(["trained", *machines, "the same seed, apart at most"], rows)


def mean_and_spread(values: Iterable[float], *, sign: bool = False) -> str:
    """``75.4 ± 1.7``: mean and sample standard deviation; nothing for no values."""
    values = list(values)
    if not values:
        return ""
    mean = f"{fmean(values):+.1f}" if sign else f"{fmean(values):.1f}"
    return f"{mean} ± {stdev(values):.1f}" if len(values) > 1 else mean


def with_interval(differences: Sequence[float]) -> str:
    """``+20.3 (+11.0 to +29.6)``: the mean of paired differences, and its interval."""
    if len(differences) < 2:
        return f"{differences[0]:+.1f}" if differences else ""
    low, high = interval(differences)
    return f"{fmean(differences):+.1f} ({low:+.1f} to {high:+.1f})"


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Student's t interval of the mean of two or more differences.

    Example: (18, 20, 22) has mean 20 and standard deviation 2, so 20 ± 4.303 * 2 / sqrt(3).
    """
    mean, error = fmean(differences), stats.sem(differences)
    low, high = stats.t.interval(CONFIDENCE, len(differences) - 1, loc=mean, scale=error)
    return float(low), float(high)


def _mean_ends(runs: pd.DataFrame, name: str) -> str:
    ends = 100 * runs[[f"{name}.first", f"{name}.last"]].dropna()
    return " -> ".join(f"{fmean(ends[end]):.0f}" for end in ends) if len(ends) else ""


def _largest_move(trained: pd.DataFrame) -> str:
    """How far apart the same seed ends on different machines (columns) at most."""
    shared = trained[trained.count(axis="columns") > 1]
    moves = shared.max(axis="columns") - shared.min(axis="columns")
    return f"{moves.max():.1f}" if len(moves) else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
