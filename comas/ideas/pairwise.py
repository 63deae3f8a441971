"""Pairwise: a solution is paid for being scored above the others of its discussion.

Source: arXiv 2511.07922 compares solutions in pairs; that the comparison is of scores, and asks for
no turns of its own, is our choice. Found (November 2026, 300 steps of the quick-start, five seeds):
84 % of the verifier's gain, 2.6 points [-4.2, 9.4] more than the paper's reward: undecided.
"""

from collections.abc import Sequence

from comas.ideas.consistency import weighed_solutions
from comas.reward_formulation import RewardScheme
from comas.reward_formulation.interaction_reward import (
    RewardTriple,
    reward_by_scoring,
    rewards_of_score,
)
from comas.types import Discussion, Rewards, Turn


def pairwise_reward(discussions: Sequence[Discussion]) -> Rewards:
    """Copeland's rule over the solutions of each discussion. With the paper's r(s) as the score of
    one of k solutions that hold a score::

        r'(s) = (number of others with a lower score + half of those with an equal one) / (k - 1)
        r'(e) = 1 - r'(s)    for an evaluation e of s
        r'(t) = 0

    where the scoring t of e holds a score, and the paper's 0, 0 and -1 where it holds none. A judge
    who approves of everything pays nobody: all get 1/2. Where a solution is the only one with a
    score, nobody is trained on it.

    Example: three solutions with the scores 3, 2 and 2: 1, 1/4 and 1/4.
    """
    wins = {}
    for discussion in discussions:
        scores = {key: reward for key, _, reward in weighed_solutions([discussion])}
        for key, score in scores.items():
            wins[key] = _wins(score, [other for rival, other in scores.items() if rival != key])

    def triple_of(discussion: Discussion, solution: Turn, score: int | None) -> RewardTriple | None:
        if score is None:
            return rewards_of_score(None)
        won = wins[discussion.discussion_id, solution.turn_id]
        return None if won is None else RewardTriple(won, 1 - won, 0.0)

    return reward_by_scoring(discussions, triple_of)


def _wins(score: float, others: Sequence[float]) -> float | None:
    """Return Copeland's share of wins, ties as half; None without others."""
    if not others:
        return None
    return sum((score > other) + 0.5 * (score == other) for other in others) / len(others)


pairwise = RewardScheme(pairwise_reward, reads="scores")
