"""The report of a reproduction: claims, tables and figures as one Markdown page."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import hypot, sqrt
from statistics import fmean, variance

from comas.reproduction.answers import KINDS
from comas.reproduction.claims import MARGIN, Claim, claims_of, decide
from comas.reproduction.experiments import MAIN, NUM_SEEDS, Plan
from comas.reproduction.outcomes import CONFIDENCE, POWER, detectable
from comas.reproduction.results import WINDOW, Results
from comas.reproduction.tables import (
    accuracy_table,
    answers_table,
    course_table,
    domains_table,
    effectiveness_table,
    machines_table,
    mean_and_spread,
    probe_table,
    table,
)
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
        f"of the first {WINDOW} steps -> mean of the last {WINDOW}, in percent. Beside it the "
        "share of the variance of advantages that lies between roles (agent 0).",
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
    return "\n\n".join(["# Learning rates", heading, table(heads, rows), POWER_LEGEND]) + "\n"


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
    return counted, table(["claim", "decided by", "outcome", "numbers"], rows)
