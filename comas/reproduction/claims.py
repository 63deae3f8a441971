"""What the paper claims, what we add, and by which rule each claim is decided.

Claims and rules were written before the runs. Every rule asks for an interval over seeds, runs of
the same seed in pairs: a claim is reproduced, or contradicted, when the whole interval says so, and
undecided else. A new claim is one entry of ``claims_of``.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import pandas as pd

from comas.reproduction.experiments import LONG_STEPS, MAIN, Plan
from comas.reproduction.outcomes import Outcome, above, all_of, equivalent, interval
from comas.reproduction.results import Results

Decision = tuple[Outcome, str]
"""An outcome, and the numbers behind it."""
Rule = Callable[[Results], Decision]

MARGIN = 5.0
"""Points of greedy held-out accuracy that count as no difference."""
EFFECTIVENESS = "reward_effectiveness/from_score_2"
MAJORITY = "an untrained agent's likeliest answer was made wrong, and the majority's is that"
LONG_MAIN = "long_live_joint"
SHORT_STEPS = 60
"""Steps of the other runs."""


@dataclass(frozen=True)
class Claim:
    """A statement, and the rule that it is decided by."""

    statement: str
    rule: str
    source: Literal["paper", "ours"] = "paper"
    needs: tuple[str, ...] = ()
    """Experiments."""
    decide: Rule | None = None
    """None: it cannot be tested here, as ``rule`` explains."""
    by_construction: str | None = None
    """Why no run could say otherwise; such a claim counts on neither side."""


def decide(claim: Claim, results: Results, *, seeds: Sequence[int]) -> Decision:
    """Apply the rule of ``claim``, once there are results with each of ``seeds``."""
    if claim.decide is None:
        return "not testable here", ""
    missing = missing_runs(claim.needs, results, seeds=seeds)
    if missing:
        return "not run", f"missing: {', '.join(missing)}"
    outcome, evidence = claim.decide(results)
    if claim.by_construction is not None:
        return "by construction", f"{evidence}; {claim.by_construction}"
    return outcome, evidence


def missing_runs(names: Sequence[str], results: Results, *, seeds: Sequence[int]) -> list[str]:
    """The experiments without results, or without those of some seeds, which are then named.

    Example: ``["muted", "exchanged (seed 2)"]``
    """
    missing = []
    for name in names:
        found = {seed for experiment, seed in results.index if experiment == name}
        lacking = [str(seed) for seed in seeds if seed not in found]
        if not found:
            missing.append(name)
        elif lacking:
            missing.append(f"{name} (seed{'s' * (len(lacking) > 1)} {', '.join(lacking)})")
    return missing


def learns(results: Results) -> Decision:
    """Accuracy rises."""
    gains = interval(results.loc[MAIN, "gain"])
    return above(gains), f"gain {gains}"


def learns_more(ours: str, theirs: str, *, column: str = "gain") -> Rule:
    """The gain of one experiment is above that of another."""

    def rule(results: Results) -> Decision:
        first, second = by_seed(results, column, ours, theirs)
        more = interval(first - second)
        return above(more), f"{ours} over {theirs} {more}"

    return rule


def leaves_less_than_half(name: str) -> Rule:
    """The gain of an experiment is under half of CoMAS's."""

    def rule(results: Results) -> Decision:
        ours, theirs = by_seed(results, "gain", MAIN, name)
        less = interval(ours / 2 - theirs)
        return above(less), f"half of CoMAS's gain over that of {name} {less}"

    return rule


def no_gain(*names: str) -> Rule:
    """Accuracy stays within the margin in all of these experiments."""

    def rule(results: Results) -> Decision:
        found = {name: interval(results.loc[name, "gain"]) for name in names}
        outcomes = [equivalent(gains, margin=MARGIN) for gains in found.values()]
        return all_of(outcomes), "; ".join(f"{name} {gains}" for name, gains in found.items())

    return rule


def rises(name: str, key: str, *, falls: bool = False) -> Rule:
    """A metric is higher (or lower) in the last steps than in the first; values from 0 to 1."""

    def rule(results: Results) -> Decision:
        runs = results.loc[name]
        changes = 100 * (runs[f"last.{key}"] - runs[f"first.{key}"]).dropna()
        said = f"{key.rpartition('/')[2].replace('_', ' ')} {interval(changes)}"
        return above(interval(-changes if falls else changes)), said

    return rule


def ends_above(name: str, key: str, *, bound: float) -> Rule:
    """A metric ends above ``bound``; values from 0 to 1."""

    def rule(results: Results) -> Decision:
        lasts = interval(100 * results.loc[name, f"last.{key}"].dropna())
        return above(lasts, 100 * bound), f"at the end {lasts}"

    return rule


def keeps(name: str, *, since: int) -> Rule:
    """Accuracy ends at most the margin below what it was after the step ``since``."""

    def rule(results: Results) -> Decision:
        runs = results.loc[name]
        changes = interval(runs["trained"] - 100 * runs[f"course.{since}"])
        return above(changes, -MARGIN), f"since step {since} {changes}"

    return rule


def every(*rules: Rule) -> Rule:
    """All of ``rules`` hold."""

    def rule(results: Results) -> Decision:
        found = [of(results) for of in rules]
        return all_of([outcome for outcome, _ in found]), "; ".join(said for _, said in found)

    return rule


def by_seed(results: Results, column: str, *names: str) -> list[pd.Series]:
    """A column of some experiments with the seeds that all of them have, in order."""
    table = results[column].unstack("experiment").reindex(columns=names).dropna()
    return [table[name] for name in names]


CONTROLS = ("flipped", "shuffled", "constant", "approving")
"""Rewards that know nothing of the discussion."""


def claims_of(plan: Plan) -> list[Claim]:
    """What is decided for a society, in the order of the report."""
    known = {experiment.name for experiment in plan.experiments}
    claims = [*_claims_of_the_paper(plan), *_claims_of_other_scales(), *_our_claims()]
    return [claim for claim in claims if known.issuperset(claim.needs)]


def _claims_of_the_paper(plan: Plan) -> Iterable[Claim]:
    solution = "reward/solution"
    yield Claim(
        "Agents that discuss and score each other improve, without labels",
        "the gain is above 0",
        needs=(MAIN,),
        decide=learns,
    )
    yield Claim(
        "Without evaluation the reward falls along training, and less is learnt",
        "the solutions' reward falls, and CoMAS gains more",
        needs=(MAIN, "no_evaluation"),
        decide=every(
            rises("no_evaluation", solution, falls=True), learns_more(MAIN, "no_evaluation")
        ),
    )
    yield Claim(
        "Without scoring the reward climbs to 1 as all approve, and less is learnt",
        "the solutions' reward ends above 0.9, and CoMAS gains more",
        needs=(MAIN, "no_scoring"),
        decide=every(
            ends_above("no_scoring", solution, bound=0.9), learns_more(MAIN, "no_scoring")
        ),
    )
    yield Claim(
        "CoMAS learns more than MAPoRL",
        "CoMAS gains more",
        needs=(MAIN, "maporl"),
        decide=learns_more(MAIN, "maporl"),
    )
    yield Claim(
        "CoMAS learns more than TTRL",
        "the same agent gains more in math, which is all that TTRL trains",
        needs=(MAIN, "ttrl"),
        decide=learns_more(MAIN, "ttrl", column="first_math_gain"),
        by_construction=MAJORITY if plan.plants_mistakes else None,
    )
    yield Claim(
        "CoMAS learns more than SRLM",
        "the same agent gains more",
        needs=(MAIN, "srlm"),
        decide=learns_more(MAIN, "srlm", column="first_gain"),
    )
    yield Claim(
        "More agents learn more",
        f"gains rise along {', '.join(plan.by_number)}",
        needs=plan.by_number,
        decide=every(*(learns_more(more, fewer) for fewer, more in pairwise(plan.by_number))),
    )
    yield Claim(
        "Unlike agents learn more than like ones",
        f"the same agent gains more in {plan.by_diversity[1]} than in {plan.by_diversity[0]}",
        needs=plan.by_diversity,
        decide=learns_more(plan.by_diversity[1], plan.by_diversity[0], column="first_gain"),
    )
    yield Claim(
        "The reward becomes a better prediction of correctness",
        "its accuracy and its precision rise",
        needs=(MAIN,),
        decide=every(*(rises(MAIN, f"{EFFECTIVENESS}/{q}") for q in ("accuracy", "precision"))),
    )
    yield Claim(
        "Rewards stay around 0.5",
        "the mean over solutions and evaluations",
        needs=(MAIN,),
        decide=lambda results: ("reproduced", "0.5"),
        by_construction="a solution and its evaluation share 1 between them",
    )


def _claims_of_other_scales() -> Iterable[Claim]:
    yield Claim(
        "The wall-clock time hardly grows with the number of agents",
        "needs GPUs of their own for every agent",
    )
    yield Claim(
        "Accuracy on GSM8K, MATH-500, HumanEval, MBPP, SciBench, GPQA and MMLU (table 1)",
        "needs models that can answer them: bash scripts/evaluate_model.sh",
    )


def _our_claims() -> Iterable[Claim]:
    yield Claim(
        "Criticism carries the learning",
        "evaluators that always approve, and evaluations of other questions, leave less than half "
        "of the gain",
        source="ours",
        needs=(MAIN, "muted", "exchanged"),
        decide=every(leaves_less_than_half("muted"), leaves_less_than_half("exchanged")),
    )
    yield Claim(
        "It is the reward that teaches",
        f"no control moves greedy accuracy by {MARGIN:g} points",
        source="ours",
        needs=CONTROLS,
        decide=no_gain(*CONTROLS),
    )
    yield Claim(
        "The verifier's reward is an upper bound",
        "it gains more than CoMAS",
        source="ours",
        needs=(MAIN, "verifier"),
        decide=learns_more("verifier", MAIN),
    )
    yield Claim(
        "The reward tells right from wrong better at the end than at the start",
        "its balanced accuracy rises",
        source="ours",
        needs=(MAIN,),
        decide=rises(MAIN, f"{EFFECTIVENESS}/balanced_accuracy"),
    )
    yield Claim(
        "CoMAS learns more than TTRL on the test questions",
        "the same agent gains more in math, though its questions are others",
        source="ours",
        needs=(MAIN, "ttrl_on_test"),
        decide=learns_more(MAIN, "ttrl_on_test", column="first_math_gain"),
        by_construction=MAJORITY,
    )
    yield Claim(
        f"What {SHORT_STEPS} steps teach is still there after {LONG_STEPS}",
        f"greedy accuracy is at most {MARGIN:g} points lower",
        source="ours",
        needs=(LONG_MAIN,),
        decide=keeps(LONG_MAIN, since=SHORT_STEPS),
    )
    for other, statement in (
        ("long_frozen_joint", "Scorers that learn along teach more than frozen ones"),
        ("long_lagged_joint", "Scorers that learn along teach more than lagged ones"),
    ):
        yield Claim(
            f"{statement}, over {LONG_STEPS} steps",
            "they gain more",
            source="ours",
            needs=(LONG_MAIN, other),
            decide=learns_more(LONG_MAIN, other),
        )
    yield Claim(
        f"A baseline for each role keeps more than one for all, over {LONG_STEPS} steps",
        "it gains more",
        source="ours",
        needs=(LONG_MAIN, "long_live_by_role"),
        decide=learns_more("long_live_by_role", LONG_MAIN),
    )
