"""The rewards of self-rewarding models (SRLM): what judges make of a solution, and nothing else."""

from collections.abc import Sequence
from statistics import fmean

from comas.reward_formulation.reading import content_of
from comas.types import Discussion, RewardedDiscussion, Rewards

GREATEST_RATING = 5


def mean_rating(discussions: Sequence[Discussion]) -> Rewards:
    """Reward a solution with the mean of its ratings, by 5: from 0 to 1.

    A rating that cannot be read counts in no mean, but in ``rating/invalid_rate``. A solution
    without a rating, and every turn of another role, gets None and is not trained: judging is
    learnt from pairs of solutions alone. Source: self-rewarding language models, arXiv
    2401.10020.

    Example: the ratings 4, 5 and one that cannot be read: reward 0.9.
    """
    everything: list[int | None] = []
    rewarded = []
    for discussion in discussions:
        rewards = {}
        for solution in discussion.solutions():
            turns = discussion.children(solution, "judges")
            given = [parse_rating(turn.text) for turn in turns]
            everything += given
            if valid := [rating for rating in given if rating is not None]:
                rewards[solution.turn_id] = fmean(valid) / GREATEST_RATING
        rewarded.append(
            RewardedDiscussion(discussion, tuple(rewards.get(t.turn_id) for t in discussion.turns))
        )
    rate = fmean(rating is None for rating in everything) if everything else None
    return Rewards(rewarded, {"rating/invalid_rate": rate})


def parse_rating(response_text: str) -> int | None:
    """The rating 0 to 5 between ``<rating>`` and ``</rating>``, or None; as strict as for a score.

    >>> parse_rating("It is complete, but its result is wrong. <rating>3</rating>")
    3
    """
    content = content_of(response_text, tag="rating")
    return int(content) if content in ("0", "1", "2", "3", "4", "5") else None
