"""CoVerRL: scorers are paid for agreeing with a vote of the solutions, solvers by the scorers.

Source: arXiv 2603.17775 trains a verifier by majority-voted answers while it learns to see what the
majority gets wrong; that scorings pay evaluations, and scores solutions, is our choice. SmolLM2's
scorers did not learn to see, but agreed on one score, 2026-11-27 (results/smollm2.md).
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
    """The paper's rewards of solutions. With v(s) = 1 if s gives the answer that most solutions of
    all copies of the question give, else 0, who evaluated and scored s is paid::

        r(e) = r(t) = 1 - |r(s) - v(s)|
        r(e) = 0, r(t) = -1     when the scoring t of e holds no score

    The first given wins a tie. Where no answer can be elected (coding, science, no boxed answer),
    the rewards are the paper's. ``majority/share`` is the mean share of solutions that give the
    elected answer.

    Example: solutions 7, 7, 8 scored 3, 2, 3 are paid 1, 1/2, 1, their judges 1, 1/2, 0.
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
