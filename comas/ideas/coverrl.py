"""CoVerRL: scorers are rewarded for agreeing with a vote of the solutions, solvers by scores.

Source: arXiv 2603.17775, where a verifier trained by majority votes learns to see what the majority
gets wrong; that evaluations are rewarded as scorings, and solutions by scores, is our choice. Found
(November 2026): SmolLM2's scorers only learned to agree on one score (results/smollm2.md).
"""

from collections.abc import Sequence

from comas.reward_formulation import RewardScheme
from comas.reward_formulation.interaction_reward import (
    RewardTriple,
    reward_by_scoring,
    rewards_of_score,
)
from comas.reward_formulation.majority_reward import hold_votes, one_vote
from comas.types import Discussion, Rewards, Turn
from comas.verification.latex import spelled_answer


def coverrl_reward(discussions: Sequence[Discussion]) -> Rewards:
    """Reward solutions as in the paper. With v(s) = 1 if s gives the answer of most solutions in
    all copies of the question, else 0, the judges of s get::

        r(e) = r(t) = 1 - |r(s) - v(s)|
        r(e) = 0, r(t) = -1     if the scoring t of e has no readable score

    The first given wins a tie. If no answer can be elected (coding, science, no boxed answer), the
    rewards are the paper's. ``majority/share`` is the mean share of solutions with the elected
    answer.

    Example: solutions 7, 7, 8 with scores 3, 2, 3 get 1, 1/2, 1, and their judges 1, 1/2, 0.
    """
    elected, metrics = hold_votes(discussions, one_vote)

    def triple_of(discussion: Discussion, solution: Turn, score: int | None) -> RewardTriple:
        rewards = rewards_of_score(score)
        answer = elected.get(discussion.question.question_id)
        if score is None or answer is None:
            return rewards
        paid = 1 - abs(rewards.solution - (spelled_answer(solution.text) == answer))
        return RewardTriple(rewards.solution, paid, paid)

    rewards = reward_by_scoring(discussions, triple_of)
    return Rewards(rewards.discussions, rewards.metrics | metrics)


coverrl = RewardScheme(coverrl_reward, reads="scores")
