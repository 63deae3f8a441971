"""Likelihood: a solution is paid for how sure its own agent was, with no judge.

Source: rewards by a model's own confidence (RENT, arXiv 2505.22660; Intuitor, arXiv 2505.19590),
of sampled tokens alone here. It made SmolLM2 sure and wrong, 2026-11-27 (results/smollm2.md).
"""

import math
from collections.abc import Sequence
from statistics import fmean

from comas.reward_formulation import RewardScheme
from comas.types import Discussion, RewardedDiscussion, Rewards, Turn


def likelihood_reward(discussions: Sequence[Discussion]) -> Rewards:
    """Reward a solution by the geometric mean of the probabilities of its tokens, as they were
    sampled, and nothing else.

    Example: a solution of two tokens of probability 0.9 and 0.4 gets 0.6.
    """
    return Rewards(
        [
            RewardedDiscussion(
                discussion,
                tuple(
                    _confidence(turn) if turn in discussion.solutions() else None
                    for turn in discussion.turns
                ),
            )
            for discussion in discussions
        ]
    )


def _confidence(solution: Turn) -> float:
    logprobs = solution.generation.sampled_logprobs
    return math.exp(fmean(logprobs)) if logprobs else 0.0


likelihood = RewardScheme(likelihood_reward)
