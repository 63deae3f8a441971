"""Instruments of collapse: what shows that a society rewards itself for less and less.

Self-made rewards tend to rise and then to fall (arXiv 2603.08660). The first group of these values
uses no answer; the second compares rewards with what the verifier says, after the fact, and
reaches no reward. arXiv 2510.08977 names the three quantities of the second group (noise,
self-bias, symmetric bias); the formulas are ours.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import StatisticsError, correlation, fmean
from typing import NamedTuple

from comas.reward_formulation.interaction_reward import parse_score
from comas.types import ROLES, Discussion, Metrics, RewardedDiscussion, Turn
from comas.verification.latex import compared_as
from comas.verification.solutions import Verdicts


class Rewarded(NamedTuple):
    """A solution that somebody gave, and what became of it."""

    reward: float
    confidence: float
    """The geometric mean of its tokens' probabilities as they were sampled."""
    truth: float | None
    """1 when the verifier calls it correct, 0 when not; None where it failed."""


def instruments(
    rewarded: Sequence[RewardedDiscussion], *, verdicts: Verdicts, num_agents: int
) -> Metrics:
    """Return what a step's discussions show of a collapse; a mean over nothing is None."""
    discussions = [item.discussion for item in rewarded]
    turns = [turn for d in discussions for turn in d.turns if not turn.is_given]
    solutions = list(_solutions(rewarded, verdicts))
    return {
        **_lengths(turns),
        **_repetition(discussions, turns),
        "instruments/coupling": _correlation(
            [s.confidence for s in solutions], [s.reward for s in solutions]
        ),
        "instruments/reliability": reliability(rewards_of_answers(rewarded)),
        **_influence(rewarded, num_agents=num_agents),
        **reward_noise(solutions),
    }


def reward_noise(solutions: Iterable[Rewarded]) -> Metrics:
    """Return how rewards r of solutions differ from the truth t (0 or 1)::

        noise     = mean |r - t|
        skew      = sum (r - t) / sum |r - t|       1: only too much is paid; -1: only too little
        self_bias = correlation of r - t with the confidence of the solver

    Example: (r, t, confidence) of (1, 0, 0.9), (0, 1, 0.3), (0.5, 0, 0.6), (1, 1, 0.6): noise
    2.5/4, skew 0.5/2.5, self-bias 0.98.
    """
    known = [(s.reward - s.truth, s.confidence) for s in solutions if s.truth is not None]
    errors = [error for error, _ in known]
    total = math.fsum(map(abs, errors))
    return {
        "instruments/noise": total / len(errors) if errors else None,
        "instruments/skew": math.fsum(errors) / total if total else None,
        "instruments/self_bias": _correlation([c for _, c in known], errors),
    }


Answers = Mapping[str, Sequence[tuple[str, float]]]
"""By question: the answer of each solution that was given, and its reward."""


def reliability(answers: Answers) -> float | None:
    """True if a reward depends on what is answered, r and r' being rewards of two solutions of a
    question::

        reliability = 1 - mean (r - r')^2 where the answers are the same
                          / mean (r - r')^2 where they differ

    1: equal answers are paid alike. 0: two equal answers are paid as differently as two that
    differ, so the reward says nothing about which is right, and there is nothing to learn from it.
    Judges that agree may all be wrong, so a high value promises nothing. The idea that agreement
    shows information without any truth is that of peer prediction (Dasgupta and Ghosh 2013); the
    formula is ours. None where no answers are the same, or none differ in what they are paid.

    Example: one question with (7, 1), (7, 0.5), (8, 0): 1 - 0.25 / ((1 + 0.25) / 2) = 0.6.
    """
    same: list[float] = []
    different: list[float] = []
    for given in answers.values():
        for (answer, reward), (other, paid) in combinations(given, 2):
            (same if answer == other else different).append((reward - paid) ** 2)
    if not same or not any(different):
        return None
    return 1 - fmean(same) / fmean(different)


def rewards_of_answers(rewarded: Iterable[RewardedDiscussion]) -> Answers:
    """Return what each answer of a step was paid."""
    answers: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for item in rewarded:
        given = answers[item.discussion.question.question_id]
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True):
            if turn.role == "solution" and not turn.is_given and reward is not None:
                given.append((compared_as(turn.text), reward))
    return answers


def entropy(values: Iterable[object]) -> float | None:
    """The entropy (nats) of how often each of ``values`` occurs: 0 where all are the same.

    Example: of (1, 1, 3, 3) it is ln 2.
    """
    counts = Counter(values)
    total = counts.total()
    if not total:
        return None
    return math.fsum(n / total * math.log(total / n) for n in counts.values())


def _lengths(turns: Sequence[Turn]) -> Metrics:
    """Mean tokens of the responses in each role."""
    lengths = {
        role: [t.generation.num_sampled_tokens for t in turns if t.role == role] for role in ROLES
    }
    return {f"response_length/{role}": fmean(of) for role, of in lengths.items() if of}


def _repetition(discussions: Sequence[Discussion], turns: Sequence[Turn]) -> Metrics:
    """True if all say the same: the entropy of scores, the share of evaluations that are the
    step's commonest, and the share of pairs of solutions within a discussion that differ."""
    evaluations = Counter(turn.text for turn in turns if turn.role == "evaluation")
    pairs = [
        float(first != second)
        for discussion in discussions
        for first, second in combinations((compared_as(s.text) for s in discussion.solutions()), 2)
    ]
    return {
        "instruments/score_entropy": entropy(
            parse_score(turn.text) for turn in turns if turn.role == "scoring"
        ),
        "instruments/commonest_evaluation": max(evaluations.values()) / evaluations.total()
        if evaluations
        else None,
        "instruments/diversity": fmean(pairs) if pairs else None,
    }


def _influence(rewarded: Sequence[RewardedDiscussion], *, num_agents: int) -> Metrics:
    """By how much solutions that an agent evaluated (or scored) are rewarded above those that
    others did: 0 for all is a society in which it does not matter who judges."""
    judged: dict[tuple[str, int], list[float]] = {}
    for item in rewarded:
        discussion = item.discussion
        rewards = dict(zip((t.turn_id for t in discussion.turns), item.rewards, strict=True))
        for solution in discussion.solutions():
            reward = rewards[solution.turn_id]
            if reward is None:
                continue
            evaluations = discussion.children(solution, "evaluation")
            for judge in (*evaluations, *discussion.scorings(solution)):
                if not judge.is_given:
                    judged.setdefault((judge.role, judge.agent_index), []).append(reward)
    metrics: Metrics = {}
    for role in ("evaluation", "scoring"):
        for agent in range(num_agents):
            paid = judged.get((role, agent))
            others = [r for (of, a), rs in judged.items() if of == role and a != agent for r in rs]
            difference = fmean(paid) - fmean(others) if paid and others else None
            metrics[f"agent_{agent}/influence/{role}"] = difference
    return metrics


def _solutions(rewarded: Iterable[RewardedDiscussion], verdicts: Verdicts) -> Iterable[Rewarded]:
    for item in rewarded:
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True):
            logprobs = turn.generation.sampled_logprobs
            if turn.role != "solution" or turn.is_given or reward is None or not logprobs:
                continue
            verdict = verdicts.get((item.discussion.discussion_id, turn.turn_id), "failed")
            truth = None if verdict == "failed" else float(verdict == "correct")
            yield Rewarded(reward, math.exp(fmean(logprobs)), truth)


def _correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's; None where one of them does not vary."""
    try:
        return correlation(first, second)
    except StatisticsError:
        return None
