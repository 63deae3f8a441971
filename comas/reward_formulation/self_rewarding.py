"""The rewards of self-rewarding models (SRLM): what judges make of a solution, and nothing else."""

from collections.abc import Callable, Sequence
from statistics import fmean

from comas.reward_formulation.interaction_reward import content_of, parse_score, rewards_of_score
from comas.types import Discussion, RewardedDiscussion, Rewards, Turn

GREATEST_RATING = 5


def mean_rating(discussions: Sequence[Discussion]) -> Rewards:
    """Reward a solution with the mean of its ratings, by 5: from 0 to 1.

    A rating that cannot be read counts in no mean, but in ``rating/invalid_rate``. A solution
    without a rating, and every turn of another role, gets None and is not trained: judging is
    learnt from pairs of solutions alone. Source: self-rewarding language models, arXiv
    2401.10020.

    Example: the ratings 4, 5 and one that cannot be read: reward 0.9.
    """
    return _mean_rewards(discussions, marks=_ratings, invalid="rating/invalid_rate")


def mean_score(discussions: Sequence[Discussion]) -> Rewards:
    """Reward a solution with the mean of (score - 1) / 2 over its scorings."""
    return _mean_rewards(discussions, marks=_scores, invalid="scoring/invalid_rate")


def parse_rating(response_text: str) -> int | None:
    """The rating 0 to 5 between ``<rating>`` and ``</rating>``, or None; as strict as for a score.

    >>> parse_rating("It is complete, but its result is wrong. <rating>3</rating>")
    3
    """
    content = content_of(response_text, tag="rating")
    return int(content) if content in ("0", "1", "2", "3", "4", "5") else None


def _ratings(discussion: Discussion, solution: Turn) -> list[float | None]:
    ratings = (parse_rating(turn.text) for turn in discussion.children(solution, "evaluation"))
    return [None if rating is None else rating / GREATEST_RATING for rating in ratings]


def _scores(discussion: Discussion, solution: Turn) -> list[float | None]:
    scores = (parse_score(turn.text) for turn in discussion.scorings(solution))
    return [None if score is None else rewards_of_score(score).solution for score in scores]


def _mean_rewards(
    discussions: Sequence[Discussion],
    *,
    marks: Callable[[Discussion, Turn], list[float | None]],
    invalid: str,
) -> Rewards:
    everything: list[float | None] = []
    rewarded = []
    for discussion in discussions:
        rewards = {}
        for solution in discussion.children(None, "solution"):
            given = marks(discussion, solution)
            everything += given
            if valid := [mark for mark in given if mark is not None]:
                rewards[solution.turn_id] = fmean(valid)
        rewarded.append(
            RewardedDiscussion(discussion, tuple(rewards.get(t.turn_id) for t in discussion.turns))
        )
    rate = fmean(mark is None for mark in everything) if everything else None
    return Rewards(rewarded, {invalid: rate})
