"""The interaction reward of CoMAS: solver and evaluator share one point as the scorer decides."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from comas.reward_formulation.reading import content_of
from comas.types import Discussion, RewardedDiscussion, Rewards, Turn

INVALID_SCORING_REWARD = -1.0


class RewardTriple(NamedTuple):
    """r(s), r(e) and r(t) of one scoring."""

    solution: float
    evaluation: float
    scoring: float


TripleOf = Callable[[Discussion, Turn, int | None], RewardTriple | None]
"""(discussion, solution, score or None if unreadable) -> rewards, or None for no reward."""


def interaction_reward(discussions: Sequence[Discussion]) -> Rewards:
    """The paper's rewards: ``rewards_of_score`` for every scoring."""
    return reward_by_scoring(discussions, lambda _, __, score: rewards_of_score(score))


def rewards_of_score(score: int | None) -> RewardTriple:
    """Equations 7 and 8 of the paper, for the score in t::

    r(s) = (score - 1) / 2      r(e) = 1 - r(s)      r(t) = 0
    r(s) = 0                    r(e) = 0             r(t) = -1    without a readable score
    """
    if score is None:
        return RewardTriple(0.0, 0.0, INVALID_SCORING_REWARD)
    solution = (score - 1) / 2
    return RewardTriple(solution, 1.0 - solution, 0.0)


def reward_by_scoring(discussions: Sequence[Discussion], triple_of: TripleOf) -> Rewards:
    """Reward each discussion by itself, and measure the share of scorings without a score."""
    scores = [parse_score(turn.text) for d in discussions for turn in d.turns_that("scores")]
    invalid_rate = fmean(score is None for score in scores) if scores else None
    rewarded = [_reward_discussion(discussion, triple_of) for discussion in discussions]
    return Rewards(rewarded, {"scoring/invalid_rate": invalid_rate})


def _reward_discussion(discussion: Discussion, triple_of: TripleOf) -> RewardedDiscussion:
    """Reward every turn above a scoring, by the purpose of its role: r(e) if it judges, r(t) of its
    own text if a program had it score, r(s) if it solves or helps (the refinement f in s.e.f.t).

    With several scorings below a turn, it gets the mean of the nearest; without any, None.
    Raises ValueError for a scoring that is below no solution.
    """
    paid: defaultdict[str, dict[int, list[float]]] = defaultdict(dict)
    for scoring in discussion.turns_that("scores"):
        solution = discussion.solution_of(scoring)
        if solution is None:
            raise ValueError(
                f"{scoring.turn_id} has no solution to score among the turns that it responds to; "
                f"let this {scoring.role} respond to a solution, or to a turn below one"
            )
        if triple := triple_of(discussion, solution, parse_score(scoring.text)):
            for distance, turn in enumerate(discussion.path_to(scoring)):
                own = rewards_of_score(parse_score(turn.text)) if distance else triple
                r = {"judges": triple.evaluation, "scores": own.scoring}
                reward = r.get(discussion.roles[turn.role].purpose, triple.solution)
                paid[turn.turn_id].setdefault(distance, []).append(reward)
    means = {turn_id: fmean(rewards[min(rewards)]) for turn_id, rewards in paid.items()}
    return RewardedDiscussion.by_turn(discussion, means)


def parse_score(response_text: str) -> int | None:
    """Return the score 1, 2 or 3 between ``<score>`` and ``</score>``, or None if it is ambiguous:
    every tag must belong to a pair, and all pairs must hold the same score.

    >>> parse_score("The point does not hold. <score>3</score>")
    3
    >>> parse_score("<score>3</score> or rather <score>1</score>") is None
    True
    """
    content = content_of(response_text, tag="score")
    return int(content) if content in ("1", "2", "3") else None
