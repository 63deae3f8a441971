"""The report of a reproduction: claims, tables and figures as one Markdown page."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import hypot, sqrt
from statistics import fmean, stdev, variance

import pandas as pd

from comas.reproduction.answers import KINDS, WEIGHTS
from comas.reproduction.claims import MARGIN, Claim, by_seed, claims_of, decide
from comas.reproduction.experiments import LONG_STEPS, MAIN, NUM_SEEDS, Experiment, Plan
from comas.reproduction.outcomes import CONFIDENCE, POWER, detectable, interval
from comas.reproduction.results import GREEDY, QUALITIES, WINDOW, Results
from comas.types import DOMAINS
from evaluation.setups import SETUPS

LIMITS = f"""\
Each agent answers the held-out questions alone; the verifier judges, and no run but the upper bound
and MAPoRL learns from it. **Greedy accuracy is what is compared**; sampled accuracy stands beside
it, as it also rises when an agent merely samples its likeliest answer more often. Intervals are
over seeds (Student's t, {CONFIDENCE:.0%} each, not adjusted for their number), runs of one seed in
pairs. A claim is reproduced or contradicted when its whole interval says so, else undecided; no
difference is an interval within {MARGIN:g} points. On the quick-start a policy samples 144
responses a step in every experiment. All of them are trained, but by SRLM two thirds (a pair of
three), by TTRL those in math, and with frozen or lagged scorers all but scorings. Learning rates
were found on other seeds ([tuning.md](tuning.md), which also says what the study can find).

**What was planted.** The agents of the quick-start are tiny. Before the runs they were taught to
solve, criticise and score, with habits of making mistakes: an untrained agent's likeliest answer
is mostly wrong. Evaluators overlook a third of mistakes, their own model's above all, and accuse
right solutions; scorers accept most true accusations and some false ones
(`comas/quickstart/world.py`). So there is something to learn, and judges who can tell. The runs
show what the loop makes of that; they cannot show what a model that was trained on the world's
text would make of it, nor the paper's benchmarks or times on GPUs."""


POWER_LEGEND = f"""\
Each method keeps the rate with the highest mean; ablations and controls have that of CoMAS.
**Power:** between seeds is the standard deviation in points, pooled over the rates; the last column
is the true difference to CoMAS (of CoMAS itself, the gain) that {NUM_SEEDS} seeds find with a
probability of {POWER:.0%}, if the two sides of a pair are independent. Smaller ones are mostly left
undecided."""


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
    claims = claims_of(plan)
    sections = [
        "# Reproduction",
        heading,
        LIMITS,
        "## Claims of the paper",
        *claims_section([c for c in claims if c.source == "paper"], results, seeds=seeds),
        "## Claims of ours",
        *claims_section([c for c in claims if c.source == "ours"], results, seeds=seeds),
        "## Held-out accuracy",
        "In percent, mean over seeds ± standard deviation.",
        accuracy_table(results, known),
        "## By domain, greedy",
        domains_table(results, known),
        "## Elicited or learnt",
        "Mean of the agents of CoMAS at several temperatures; pass@8 is right in one of 8 tries at "
        "temperature 1. An agent that finds the answer so has it already.",
        answers_table(results, ("T=0.7", "T=1", "pass@8")),
        "## What answers are made of",
        "Of 8 answers at temperature 1 to each held-out question.",
        answers_table(results, [f"mistakes/{kind}" for kind in KINDS]),
        "## Under the set-ups",
        "Temperature 0.7; no set-up occurs in training, though Discussion is close to it.",
        answers_table(results, [f"setup/{name}" for name in SETUPS]),
        "## The course of long runs",
        "Greedy accuracy along training.",
        course_table(results, known),
        "## The probe of the judges",
        "Planted solutions, before training -> after it, in percent of those that could show it.",
        probe_table(results, known),
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


def write_tuning(ended: Mapping[str, Mapping[float, Sequence[float]]], *, heading: str) -> str:
    """The page of ``--tune``: greedy accuracy at the end, experiment -> learning rate -> seeds."""
    rates = sorted({rate for of_one in ended.values() for rate in of_one})
    spreads = {name: _spread(of_one.values()) for name, of_one in ended.items()}
    of_main = spreads.get(MAIN, 0.0)
    rows = []
    for name, of_one in ended.items():
        best = max(of_one, key=lambda rate: fmean(of_one[rate]))
        apart = hypot(spreads[name], of_main if name != MAIN else 0.0)
        found = f"{detectable(apart, NUM_SEEDS):.0f}"
        cells = [mean_and_spread(of_one.get(rate, ())) for rate in rates]
        rows.append([name, *cells, f"{best:g}", f"{spreads[name]:.1f}", found])
    heads = [
        "greedy accuracy, trained, %",
        *(f"{rate:g}" for rate in rates),
        "kept",
        "between seeds",
        f"{NUM_SEEDS} seeds find",
    ]
    return "\n\n".join(["# Learning rates", heading, _table(heads, rows), POWER_LEGEND]) + "\n"


def _spread(groups: Iterable[Sequence[float]]) -> float:
    """The standard deviation between seeds, pooled over groups of the same settings."""
    variances = [variance(values) for values in groups if len(values) > 1]
    return sqrt(fmean(variances)) if variances else 0.0


def claims_section(
    claims: Sequence[Claim], results: Results, *, seeds: Sequence[int]
) -> tuple[str, str]:
    """How many claims had which outcome, and each with its rule and numbers."""
    found = [decide(claim, results, seeds=seeds) for claim in claims]
    counts = Counter(outcome for outcome, _ in found)
    rows = [
        [claim.statement, claim.rule, f"**{outcome}**", evidence]
        for claim, (outcome, evidence) in zip(claims, found, strict=True)
    ]
    counted = f"Of {len(claims)}: {', '.join(f'{n} {outcome}' for outcome, n in counts.items())}."
    return counted, _table(["claim", "decided by", "outcome", "numbers"], rows)


def accuracy_table(results: Results, experiments: Sequence[Experiment]) -> str:
    """Untrained and trained accuracy, and what CoMAS has more with the same seeds."""
    rows = []
    for experiment in experiments:
        runs = results.loc[experiment.name]
        more = ""
        if experiment.name != MAIN:
            ours, theirs = by_seed(results, "gain", MAIN, experiment.name)
            more = str(interval(ours - theirs)) if len(ours) > 1 else ""
        rows.append(
            [
                f"{experiment.name} ({experiment.kind})",
                experiment.about,
                mean_and_spread(runs["untrained"]),
                mean_and_spread(runs["trained"]),
                mean_and_spread(runs["gain"], sign=True),
                more,
                mean_and_spread(runs["sampled_untrained"]),
                mean_and_spread(runs["sampled_trained"]),
                str(len(runs)),
            ]
        )
    heads = [
        "experiment",
        "what it is",
        "greedy, untrained",
        "trained",
        "gain",
        "CoMAS gains more",
        "sampled, untrained",
        "trained",
        "seeds",
    ]
    return _table(heads, rows)


def domains_table(results: Results, experiments: Sequence[Experiment]) -> str:
    """Greedy accuracy before and after training in each domain."""
    keys = [f"{GREEDY}/{domain}" for domain in DOMAINS]
    return _changes(results, experiments, keys, ("before", "after"))


def answers_table(results: Results, names: Sequence[str]) -> str:
    """Shares of answers before and after training, of the runs that have been asked."""
    rows = []
    for name in names:
        keys = [f"answers.{weights}/{name}" for weights in WEIGHTS]
        both = 100 * results.reindex(columns=keys).dropna()
        if len(both):
            ends = [mean_and_spread(both[key]) for key in keys]
            rows.append(
                [name.rpartition("/")[2], *ends, str(interval(both[keys[1]] - both[keys[0]]))]
            )
    return _table(["", *WEIGHTS, "change"], rows) if rows else "Nobody has been asked."


def course_table(results: Results, experiments: Sequence[Experiment]) -> str:
    """Greedy accuracy after every fifth of the long runs."""
    steps = range(0, LONG_STEPS + 1, LONG_STEPS // 5)
    rows = []
    for experiment in experiments:
        if experiment.kind == "long":
            runs = 100 * results.loc[experiment.name].reindex(
                columns=[f"course.{s}" for s in steps]
            )
            cells = [mean_and_spread(runs[column].dropna()) for column in runs]
            rows.append([experiment.name, experiment.about, *cells])
    return _table(["experiment", "what it is", *map(str, steps)], rows) if rows else "None was run."


def probe_table(results: Results, experiments: Sequence[Experiment]) -> str:
    """What judges make of planted solutions, before and after training."""
    measures = ("names", "overlooks", "accuses", "accepts_true", "accepts_false")
    keys = [f"probe/{measure}" for measure in measures]
    return _changes(results, experiments, keys, ("before", "after"))


def effectiveness_table(results: Results, experiments: Sequence[Experiment]) -> str:
    """How well the reward tells correct solutions from others, along training."""
    keys = [f"reward_effectiveness/from_score_2/{quality}" for quality in QUALITIES]
    return _changes(results, experiments, keys, ("first", "last"))


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


def _changes(
    results: Results,
    experiments: Sequence[Experiment],
    keys: Sequence[str],
    moments: tuple[str, str],
) -> str:
    """A row for each experiment, a column for each key: its mean at two moments, in percent."""
    rows = []
    for experiment in experiments:
        runs = results.loc[experiment.name]
        cells = []
        for key in keys:
            both = 100 * runs.reindex(columns=[f"{moment}.{key}" for moment in moments]).dropna()
            cells.append(
                " -> ".join(f"{fmean(both[end]):.0f}" for end in both) if len(both) else ""
            )
        rows.append([experiment.name, *cells])
    return _table(["experiment", *(key.rpartition("/")[2].replace("_", " ") for key in keys)], rows)


def _largest_move(trained: pd.DataFrame) -> str:
    """How far apart the same seed ends on different machines (columns) at most."""
    shared = trained[trained.count(axis="columns") > 1]
    moves = shared.max(axis="columns") - shared.min(axis="columns")
    return f"{moves.max():.1f}" if len(moves) else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
