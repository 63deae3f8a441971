"""The paper's reward with scorers that are right as often as one says.

    reward.scheme=configs/studies/simulated_scorers.py:right_90

A score is 3 or 1. It is right with a given probability, which is its AUC, whatever the discussion
says: no text can deceive it. With a probability of 1 it is reward.scheme=verifier_climbing.
"""

from collections.abc import Sequence
from functools import partial
from random import Random

from comas.reward_formulation import RewardScheme
from comas.reward_formulation.interaction_reward import (
    RewardTriple,
    reward_by_scoring,
    rewards_of_score,
)
from comas.types import Discussion, Rewards, Turn
from comas.verification.solutions import Verdicts


def simulated_reward(
    discussions: Sequence[Discussion], *, verdicts: Verdicts, rng: Random, probability: float
) -> Rewards:
    """Equations 7 and 8 with simulated scores; a scoring is paid for its own format, 0 or -1. Where
    the verifier failed, no turn is trained."""

    def triple_of(discussion: Discussion, solution: Turn, said: int | None) -> RewardTriple | None:
        verdict = verdicts[discussion.discussion_id, solution.turn_id]
        if verdict == "failed":
            return None
        is_right = rng.random() < probability
        paid = rewards_of_score(3 if is_right == (verdict == "correct") else 1)
        return paid._replace(scoring=rewards_of_score(said).scoring)

    return reward_by_scoring(discussions, triple_of)


right_75, right_90 = (
    RewardScheme(
        partial(simulated_reward, probability=probability),
        reads="scores",
        needs=("verdicts", "rng"),
    )
    for probability in (0.75, 0.9)
)
