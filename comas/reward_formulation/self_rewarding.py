"""The rewards of self-rewarding models (SRLM): ratings of solutions."""

from collections.abc import Sequence
from statistics import fmean

from comas.reward_formulation.reading import content_of
from comas.types import Discussion, RewardedDiscussion, Rewards

GREATEST_RATING = 5


def mean_rating(discussions: Sequence[Discussion]) -> Rewards:
    """Reward a solution with the mean of its readable ratings, divided by 5; other turns get None,
    as judging is learnt only from pairs of solutions. ``rating/invalid_rate`` is the share of
    unreadable ratings. Source: self-rewarding language models, arXiv 2401.10020.

    Example: the ratings 4, 5 and an unreadable one give 0.9.
    """
    everything: list[int | None] = []
    rewarded = []
    for discussion in discussions:
        rewards = {}
        for solution in discussion.solutions():
            given = [parse_rating(turn.text) for turn in discussion.children(solution, "judges")]
            everything += given
            if valid := [rating for rating in given if rating is not None]:
                rewards[solution.turn_id] = fmean(valid) / GREATEST_RATING
        rewarded.append(RewardedDiscussion.by_turn(discussion, rewards))
    rate = fmean(rating is None for rating in everything) if everything else None
    return Rewards(rewarded, {"rating/invalid_rate": rate})


def parse_rating(response_text: str) -> int | None:
    """Return the rating 0 to 5 between ``<rating>`` tags, or None, as strictly as ``parse_score``.

    >>> parse_rating("It is complete, but its result is wrong. <rating>3</rating>")
    3
    """
    content = content_of(response_text, tag="rating")
    return int(content) if content in ("0", "1", "2", "3", "4", "5") else None
