"""The report of a reproduction: claims, tables and figures as one Markdown page."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev

from scipy import stats

from comas.reproduction.claims import NOISE, Claim, claims_of, judge, paired
from comas.reproduction.experiments import MAIN, Experiment, Plan
from comas.reproduction.results import QUALITIES, WINDOW, Ends, Results, RunResult

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
    known = [experiment for experiment in plan.experiments if results.get(experiment.name)]
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
        runs = results[experiment.name]
        more = [main.gain - run.gain for main, run in paired(results, MAIN, experiment.name)]
        rows.append(
            [
                f"{experiment.name} ({experiment.kind})",
                experiment.about,
                mean_and_spread([run.untrained for run in runs]),
                mean_and_spread([run.trained for run in runs]),
                mean_and_spread([run.gain for run in runs], sign=True),
                "" if experiment.name == MAIN else with_interval(more),
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
        runs = results[experiment.name]
        cells = [_mean_ends([run.effectiveness[quality] for run in runs]) for quality in QUALITIES]
        rows.append([experiment.name, *cells])
    return _table(["experiment", *(name.replace("_", " ") for name in QUALITIES)], rows)


def machines_table(
    results: Results, elsewhere: Mapping[str, Results], experiments: Sequence[Experiment]
) -> str:
    """Trained accuracy on every machine, and how far the same seed moves between them."""
    if not elsewhere:
        return "These experiments have been run on this machine only."
    machines = {"this machine": results, **elsewhere}
    rows = []
    for experiment in experiments:
        of_machines = [machine.get(experiment.name, ()) for machine in machines.values()]
        cells = [mean_and_spread([run.trained for run in runs]) for runs in of_machines]
        rows.append([experiment.name, *cells, _largest_move(of_machines)])
    return _table(["trained", *machines, "the same seed, apart at most"], rows)


def mean_and_spread(values: Sequence[float], *, sign: bool = False) -> str:
    """``75.4 ± 1.7``: mean and sample standard deviation; nothing for no values."""
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
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1))
    half = quantile * stdev(differences) / math.sqrt(len(differences))
    return fmean(differences) - half, fmean(differences) + half


def _mean_ends(of_runs: Sequence[Ends]) -> str:
    whole = [ends for ends in of_runs if ends.first is not None and ends.last is not None]
    if not whole:
        return ""
    first = fmean(100 * ends.first for ends in whole if ends.first is not None)
    last = fmean(100 * ends.last for ends in whole if ends.last is not None)
    return f"{first:.0f} -> {last:.0f}"


def _largest_move(of_machines: Sequence[Sequence[RunResult]]) -> str:
    by_seed: dict[int, list[float]] = {}
    for runs in of_machines:
        for run in runs:
            by_seed.setdefault(run.seed, []).append(run.trained)
    moves = [max(values) - min(values) for values in by_seed.values() if len(values) > 1]
    return f"{max(moves):.1f}" if moves else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
