"""The pairwise reward: a solution is paid for being scored above the others of its discussion."""

from collections.abc import Sequence

from comas.reward_formulation.interaction_reward import interaction_reward
from comas.types import Discussion, RewardedDiscussion, Rewards


def pairwise_reward(discussions: Sequence[Discussion]) -> Rewards:
    """Copeland's rule over the solutions of each discussion. With the paper's r(s) as the score of
    one of k solutions::

        r'(s) = (number of others with a lower score + half of those with an equal one) / (k - 1)
        r'(e) = 1 - r'(s)    for every evaluation e of s
        r'(t) = r(t)

    A judge who approves of everything pays nobody: all get 1/2. arXiv 2511.07922 compares
    solutions in pairs; that the comparison is of scores, and asks for no turns of its own, is our
    choice. A solution that is alone, or that nobody scored, gets None and is not trained, as its
    evaluations.

    Example: three solutions with the scores 3, 2 and 2: 1, 1/4 and 1/4.
    """
    base = interaction_reward(discussions)
    return Rewards([_compare(item) for item in base.discussions], base.metrics)


def _compare(item: RewardedDiscussion) -> RewardedDiscussion:
    turns = item.discussion.turns
    scores = {
        turn.turn_id: reward
        for turn, reward in zip(turns, item.rewards, strict=True)
        if turn.role == "solution" and reward is not None
    }
    wins = {
        turn_id: _wins(own, [s for other, s in scores.items() if other != turn_id])
        for turn_id, own in scores.items()
    }
    rewards: list[float | None] = []
    for turn, reward in zip(turns, item.rewards, strict=True):
        if turn.role == "scoring":
            rewards.append(reward)
        elif turn.role == "solution":
            rewards.append(wins.get(turn.turn_id))
        else:
            won = wins.get(turn.parent_turn_id or "")
            rewards.append(None if won is None or reward is None else 1 - won)
    return RewardedDiscussion(item.discussion, tuple(rewards))


def _wins(own: float, others: Sequence[float]) -> float | None:
    """Copeland's share of wins, ties as half."""
    if not others:
        return None
    return sum((own > other) + 0.5 * (own == other) for other in others) / len(others)
