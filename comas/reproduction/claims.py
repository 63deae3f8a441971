"""What the paper claims, and by which rule a claim counts as reproduced.

The rules were written before the runs. A new claim is one entry of ``claims_of``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal

from comas.reproduction.experiments import BASELINES, MAIN, Plan
from comas.reproduction.results import Results, RunResult

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
    holds: Callable[[Results], tuple[bool, str]] | None = None
    """Whether it holds, and the numbers; None: it cannot be tested here, as ``rule`` explains."""


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
        found = {run.seed for run in results.get(name, ())}
        lacking = [str(seed) for seed in seeds if seed not in found]
        if not found:
            missing.append(name)
        elif lacking:
            missing.append(f"{name} (seed{'s' * (len(lacking) > 1)} {', '.join(lacking)})")
    return missing


def learns(results: Results) -> tuple[bool, str]:
    """Accuracy rises by more than the noise with every seed."""
    gains = [run.gain for run in results[MAIN]]
    return min(gains) > NOISE, f"gains {_points(gains)}"


def below(name: str, *, share: float = 1.0) -> Callable[[Results], tuple[bool, str]]:
    """Every seed's gain is under ``share`` of CoMAS's with the same seed, which is more than the
    noise: of a loss there is no share."""

    def holds(results: Results) -> tuple[bool, str]:
        pairs = paired(results, MAIN, name)
        theirs, ours = _points([b.gain for _, b in pairs]), _points([a.gain for a, _ in pairs])
        evidence = f"gains {theirs} against {ours}"
        less = [a.gain > NOISE and b.gain < share * a.gain for a, b in pairs]
        return bool(less) and all(less), evidence

    return holds


def reward_falls(name: str) -> Callable[[Results], tuple[bool, str]]:
    """The solutions' mean reward is lower at the end than at the beginning, with every seed."""

    def holds(results: Results) -> tuple[bool, str]:
        changes = [run.solution_reward.change for run in results[name]]
        return all(c is not None and c < 0 for c in changes), f"changes {_signed(changes)}"

    return holds


def reward_saturates(name: str, *, at_least: float) -> Callable[[Results], tuple[bool, str]]:
    """The solutions' mean reward ends high, with every seed."""

    def holds(results: Results) -> tuple[bool, str]:
        lasts = [run.solution_reward.last for run in results[name]]
        shown = ", ".join("-" if last is None else f"{last:.2f}" for last in lasts)
        return all(last is not None and last >= at_least for last in lasts), f"at the end {shown}"

    return holds


def both(
    *rules: Callable[[Results], tuple[bool, str]],
) -> Callable[[Results], tuple[bool, str]]:
    """All of ``rules`` hold."""

    def holds(results: Results) -> tuple[bool, str]:
        found = [rule(results) for rule in rules]
        return all(held for held, _ in found), "; ".join(evidence for _, evidence in found)

    return holds


def rising_means(*names: str) -> Callable[[Results], tuple[bool, str]]:
    """Mean trained accuracy rises from each experiment to the next."""

    def holds(results: Results) -> tuple[bool, str]:
        means = [fmean(run.trained for run in results[name]) for name in names]
        shown = ", ".join(f"{name} {mean:.1f}" for name, mean in zip(names, means, strict=True))
        return all(a < b for a, b in pairwise(means)), f"trained {shown}"

    return holds


def stays_flat(*names: str) -> Callable[[Results], tuple[bool, str]]:
    """No seed of any of these experiments gains more than the noise."""

    def holds(results: Results) -> tuple[bool, str]:
        most = {name: max(run.gain for run in results[name]) for name in names}
        shown = ", ".join(f"{name} {gain:+.1f}" for name, gain in most.items())
        return all(gain <= NOISE for gain in most.values()), f"largest gains: {shown}"

    return holds


def effectiveness_rises(results: Results) -> tuple[bool, str]:
    """Accuracy and precision of the reward as a prediction rise with every seed."""
    changes = {
        name: [run.effectiveness[name].change for run in results[MAIN]]
        for name in ("accuracy", "precision", "balanced_accuracy")
    }
    shown = "; ".join(f"{name} {_signed(values)}" for name, values in changes.items())
    rises = [c is not None and c > 0 for n in ("accuracy", "precision") for c in changes[n]]
    return all(rises), shown


def reward_balanced(results: Results) -> tuple[bool, str]:
    """Solvers and evaluators get as much at the end, with every seed."""
    lasts = [run.reward.last for run in results[MAIN]]
    shown = ", ".join("-" if last is None else f"{last:.2f}" for last in lasts)
    return all(last is not None and 0.45 <= last <= 0.55 for last in lasts), f"at the end {shown}"


def paired(results: Results, one: str, other: str) -> list[tuple[RunResult, RunResult]]:
    """The runs of two experiments that have the same seed, in the order of seeds."""
    of_other = {run.seed: run for run in results.get(other, ())}
    return [(run, of_other[run.seed]) for run in results.get(one, ()) if run.seed in of_other]


def _points(values: Sequence[float]) -> str:
    return ", ".join(f"{value:+.1f}" for value in values)


def _signed(values: Sequence[float | None]) -> str:
    return ", ".join("-" if value is None else f"{value:+.3f}" for value in values)


CONTROLS = ("flipped", "shuffled", "constant", "approving")
"""Rewards that know nothing of the discussion."""


def claims_of(plan: Plan) -> list[Claim]:
    """What is judged for a society, in the order of the report."""
    return [*_of_the_method(), *_of_the_society(plan), *_of_other_scales()]


def _of_the_method() -> list[Claim]:
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


def _of_the_society(plan: Plan) -> list[Claim]:
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


def _of_other_scales() -> list[Claim]:
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
