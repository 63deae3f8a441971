"""AT-GRPO: GRPO in groups by agent and turn."""

import torch

from comas.policy_optimization.advantages.grpo import grpo
from comas.policy_optimization.advantages.inputs import AdvantageInputs


def at_grpo(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T] of GRPO, in groups of like prompts: one question, turn and agent.

    Responses to different prompts are no comparison for each other, and in a discussion the
    prompts differ by turn and agent. A turn is a round and a role here. The paper samples a tree:
    K responses to each prompt, of which one goes on. Here the copies of a discussion take
    their place, which have histories of their own after the first round; such prompts count as
    alike. With ``interaction.prompt_reuse=1`` every solution would be alone, which the preflight
    refuses. Source: Stronger-MAS, arXiv 2510.11062.
    """
    return grpo(inputs)
