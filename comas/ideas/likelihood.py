"""Likelihood: a solution is rewarded by its agent's confidence, without judges.

Source: rewards by a model's own confidence (RENT, arXiv 2505.22660; Intuitor, arXiv 2505.19590),
here of the sampled tokens. Found (November 2026): SmolLM2 became sure and wrong
(results/smollm2.md).
"""

import math
from collections.abc import Sequence
from statistics import fmean

from comas.reward_formulation import RewardScheme
from comas.types import Discussion, RewardedDiscussion, Rewards, Turn


def likelihood_reward(discussions: Sequence[Discussion]) -> Rewards:
    """Reward solutions by the geometric mean of the probabilities of their tokens, as sampled.

    Example: tokens with probabilities 0.9 and 0.4 give 0.6.
    """
    return Rewards(
        [
            RewardedDiscussion.by_turn(
                d, {turn.turn_id: _confidence(turn) for turn in d.solutions()}
            )
            for d in discussions
        ]
    )


def _confidence(solution: Turn) -> float:
    logprobs = solution.generation.sampled_logprobs
    return math.exp(fmean(logprobs)) if logprobs else 0.0


likelihood = RewardScheme(likelihood_reward)
