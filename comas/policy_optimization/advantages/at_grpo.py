"""AT-GRPO: GRPO in groups by agent and turn."""

import torch

from comas.policy_optimization.advantages.grpo import grpo
from comas.policy_optimization.advantages.inputs import AdvantageInputs


def at_grpo(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T] of GRPO, in groups of like prompts: one question, turn and agent.

    Responses to different prompts are no comparison for each other, and in a discussion the
    prompts differ by turn and agent. A turn is a round and a role here. After the first round
    the copies of a discussion have histories of their own, which the paper avoids by sampling
    several responses to each prompt; such prompts count as alike. Source: Stronger-MAS,
    arXiv 2510.11062.
    """
    return grpo(inputs)
