"""What the paper claims, and by which rule a claim counts as reproduced.

The rules were written before the runs. A new claim is one entry of ``claims_of``.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan
from statistics import fmean
from typing import Literal

import pandas as pd

from comas.reproduction.experiments import BASELINES, MAIN, Plan
from comas.reproduction.results import Results

Rule = Callable[[Results], tuple[bool, str]]
"""Whether a claim holds, and the numbers. A number that is missing (NaN) meets no bound."""

Outcome = Literal["reproduced", "not reproduced", "not testable at this scale", "not run"]

NOISE = 3.0
"""Points of held-out accuracy that count as no change."""


@dataclass(frozen=True)
class Judgement:
    """What a rule says of the results."""

    outcome: Outcome
    evidence: str


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and the rule that it is judged by."""

    statement: str
    rule: str
    needs: tuple[str, ...] = ()
    """Experiments."""
    holds: Rule | None = None
    """None: it cannot be tested here, as ``rule`` explains."""


def judge(claim: Claim, results: Results, *, seeds: Sequence[int]) -> Judgement:
    """Apply the rule of ``claim``, once there are results with each of ``seeds``."""
    if claim.holds is None:
        return Judgement("not testable at this scale", "")
    missing = missing_runs(claim.needs, results, seeds=seeds)
    if missing:
        return Judgement("not run", f"missing: {', '.join(missing)}")
    holds, evidence = claim.holds(results)
    return Judgement("reproduced" if holds else "not reproduced", evidence)


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


def learns(results: Results) -> tuple[bool, str]:
    """Accuracy rises by more than the noise with every seed."""
    gains = results.loc[MAIN, "gain"]
    return all(gains > NOISE), f"gains {_listed(gains, '+.1f')}"


def below(name: str, *, share: float = 1.0) -> Rule:
    """Every seed's gain is under ``share`` of CoMAS's with the same seed, which is more than the
    noise: of a loss there is no share."""

    def holds(results: Results) -> tuple[bool, str]:
        ours, theirs = gains_by_seed(results, MAIN, name)
        less = (ours > NOISE) & (theirs < share * ours)
        evidence = f"gains {_listed(theirs, '+.1f')} against {_listed(ours, '+.1f')}"
        return len(less) > 0 and all(less), evidence

    return holds


def reward_falls(name: str) -> Rule:
    """The solutions' mean reward is lower at the end than at the beginning, with every seed."""

    def holds(results: Results) -> tuple[bool, str]:
        changes = _changes(results.loc[name], "solution_reward")
        return all(changes < 0), f"changes {_listed(changes, '+.3f')}"

    return holds


def reward_saturates(name: str, *, at_least: float) -> Rule:
    """The solutions' mean reward ends high, with every seed."""

    def holds(results: Results) -> tuple[bool, str]:
        lasts = results.loc[name, "solution_reward.last"]
        return all(lasts >= at_least), f"at the end {_listed(lasts, '.2f')}"

    return holds


def both(*rules: Rule) -> Rule:
    """All of ``rules`` hold."""

    def holds(results: Results) -> tuple[bool, str]:
        found = [rule(results) for rule in rules]
        return all(held for held, _ in found), "; ".join(evidence for _, evidence in found)

    return holds


def rising_means(*names: str) -> Rule:
    """Mean trained accuracy rises from each experiment to the next."""

    def holds(results: Results) -> tuple[bool, str]:
        means = [fmean(results.loc[name, "trained"]) for name in names]
        shown = ", ".join(f"{name} {mean:.1f}" for name, mean in zip(names, means, strict=True))
        return all(a < b for a, b in pairwise(means)), f"trained {shown}"

    return holds


def stays_flat(*names: str) -> Rule:
    """No seed of any of these experiments gains more than the noise."""

    def holds(results: Results) -> tuple[bool, str]:
        most = {name: results.loc[name, "gain"].max() for name in names}
        shown = ", ".join(f"{name} {gain:+.1f}" for name, gain in most.items())
        return all(gain <= NOISE for gain in most.values()), f"largest gains: {shown}"

    return holds


def effectiveness_rises(results: Results) -> tuple[bool, str]:
    """Accuracy and precision of the reward as a prediction rise with every seed."""
    qualities = ("accuracy", "precision", "balanced_accuracy")
    changes = {name: _changes(results.loc[MAIN], f"effectiveness.{name}") for name in qualities}
    shown = "; ".join(f"{name} {_listed(values, '+.3f')}" for name, values in changes.items())
    return all(all(changes[name] > 0) for name in ("accuracy", "precision")), shown


def reward_balanced(results: Results) -> tuple[bool, str]:
    """Solvers and evaluators get as much at the end, with every seed."""
    lasts = results.loc[MAIN, "reward.last"]
    return all(lasts.between(0.45, 0.55)), f"at the end {_listed(lasts, '.2f')}"


def gains_by_seed(results: Results, *names: str) -> list[pd.Series]:
    """The gains of some experiments with the seeds that all of them have, in order."""
    gains = results["gain"].unstack("experiment").reindex(columns=names).dropna()
    return [gains[name] for name in names]


def _changes(runs: pd.DataFrame, name: str) -> pd.Series:
    """The end minus the beginning."""
    return runs[f"{name}.last"] - runs[f"{name}.first"]


def _listed(values: Iterable[float], form: str) -> str:
    return ", ".join("-" if isnan(value) else f"{value:{form}}" for value in values)


CONTROLS = ("flipped", "shuffled", "constant", "approving")
"""Rewards that know nothing of the discussion."""


def claims_of(plan: Plan) -> list[Claim]:
    """What is judged for a society, in the order of the report."""
    return [*_method_claims(), *_society_claims(plan), *_claims_of_other_scales()]


def _method_claims() -> list[Claim]:
    return [
        Claim(
            "Agents that discuss and score each other improve, without labels",
            f"held-out accuracy rises by more than {NOISE:g} points with every seed",
            (MAIN,),
            learns,
        ),
        Claim(
            "Without evaluation the reward falls along training, and less is learnt",
            "with every seed the solutions' reward falls, and the gain is below CoMAS's",
            (MAIN, "no_evaluation"),
            both(reward_falls("no_evaluation"), below("no_evaluation")),
        ),
        Claim(
            "Without scoring the reward climbs to 1 as all approve, and less is learnt",
            "with every seed the solutions' reward ends at 0.9 or above, the gain below CoMAS's",
            (MAIN, "no_scoring"),
            both(reward_saturates("no_scoring", at_least=0.9), below("no_scoring")),
        ),
        Claim(
            "Criticism carries the learning (ours; the paper's ablation leaves out the prompt)",
            "with every seed muted evaluators leave less than a sixth of the gain, evaluations "
            "exchanged between discussions less than half",
            (MAIN, "muted", "exchanged"),
            both(below("muted", share=1 / 6), below("exchanged", share=1 / 2)),
        ),
        Claim(
            "It is the reward that teaches (ours: controls)",
            f"no control gains more than {NOISE:g} points with any seed",
            CONTROLS,
            stays_flat(*CONTROLS),
        ),
        Claim(
            "The verifier's reward is an upper bound (ours)",
            "its mean accuracy is above CoMAS's",
            (MAIN, "verifier"),
            rising_means(MAIN, "verifier"),
        ),
        Claim(
            "CoMAS learns more than MAPoRL, TTRL and SRLM",
            "its mean accuracy is above that of each",
            (MAIN, *BASELINES),
            both(*(rising_means(name, MAIN) for name in BASELINES)),
        ),
    ]


def _society_claims(plan: Plan) -> list[Claim]:
    return [
        Claim(
            "More agents learn more",
            f"mean accuracy rises along {', '.join(plan.by_number)}",
            plan.by_number,
            rising_means(*plan.by_number),
        ),
        Claim(
            "Unlike agents learn more than like ones",
            f"mean accuracy of {plan.by_diversity[1]} is above that of {plan.by_diversity[0]}",
            plan.by_diversity,
            rising_means(*plan.by_diversity),
        ),
        Claim(
            "The reward becomes a better prediction of correctness",
            "its accuracy and precision rise with every seed",
            (MAIN,),
            effectiveness_rises,
        ),
        Claim(
            "Rewards stay around 0.5",
            "their mean over solutions and evaluations ends within 0.45 to 0.55 with every seed "
            "(by construction wherever scores are valid: the two share 1 between them)",
            (MAIN,),
            reward_balanced,
        ),
    ]


def _claims_of_other_scales() -> list[Claim]:
    return [
        Claim(
            "The wall-clock time hardly grows with the number of agents",
            "needs GPUs of their own for every agent",
        ),
        Claim(
            "Accuracy on GSM8K, MATH-500, HumanEval, MBPP, SciBench, GPQA and MMLU (table 1)",
            "needs models that can answer them: bash scripts/evaluate_model.sh",
        ),
    ]
