"""Advantage estimators beyond the paper's, each for ``algorithm.name=custom``, such as::

    algorithm: {name: custom, estimator: comas.ideas.advantages:dr_grpo}

All tokens of a response have the same advantage, and 0 where the mask is False.
"""

import torch

from comas.policy_optimization.advantages import (
    AdvantageEstimator,
    AdvantageInputs,
    centered,
    grpo,
    standardized,
    whiten,
    within_groups,
)

BY_ROLE = ("question_id", "role")


def _reinforce_pp_baseline(inputs: AdvantageInputs) -> torch.Tensor:
    """r - mean(group), whitened over all response tokens of the buffer as in ``reinforce_pp``."""
    advantages = within_groups(inputs.rewards, inputs.groups, centered)
    return whiten(advantages[:, None].expand(inputs.mask.shape), inputs.mask)


reinforce_pp_baseline = AdvantageEstimator(_reinforce_pp_baseline, BY_ROLE, kl_loss="k2")
"""REINFORCE++ with a baseline per group (arXiv 2501.03262)."""


def _dr_grpo(inputs: AdvantageInputs) -> torch.Tensor:
    """r - mean(group)."""
    return inputs.on_every_token(within_groups(inputs.rewards, inputs.groups, centered))


dr_grpo = AdvantageEstimator(_dr_grpo, BY_ROLE, kl_loss="k3")
"""Dr. GRPO (arXiv 2503.20783). Dividing by the standard deviation favours questions that are too
easy or too hard, and dividing by a response's length favours long wrong answers: use it with
``loss_aggregation: constant_length``."""


def _dr_mas(inputs: AdvantageInputs) -> torch.Tensor:
    """(r - mean(group)) / (std(group) + 1e-6), or r / (1 + 1e-6) alone in its group."""

    def relate(rewards: torch.Tensor) -> torch.Tensor:
        return standardized(rewards, epsilon=1e-6) if len(rewards) > 1 else rewards / (1 + 1e-6)

    return inputs.on_every_token(within_groups(inputs.rewards, inputs.groups, relate))


dr_mas = AdvantageEstimator(_dr_mas, ("question_id", "role", "agent_index"), kl_loss="k3")
"""Dr. MAS (arXiv 2602.08847): a group holds an agent's responses to a question in one role, in all
rounds and copies, as a common mean would give agents with unusual rewards large gradients."""


at_grpo = AdvantageEstimator(
    grpo, ("question_id", "round_index", "role", "agent_index"), kl_loss="k3"
)
"""AT-GRPO of Stronger-MAS (arXiv 2510.11062): GRPO in groups of similar prompts. The paper samples
K responses to each prompt; here they come from the copies of a discussion, whose histories differ
after the first round. It needs ``interaction.prompt_reuse`` above 1."""


def _rae(inputs: AdvantageInputs) -> torch.Tensor:
    """r - b, with the group's baseline b <- 0.95 b + 0.05 r after each response in buffer order. b
    starts at 0 and is kept between updates (``inputs.memory``).

    Example: the rewards 1, 1 of one group have advantages 1 and 0.95; b is then 0.0975.
    """
    advantages = []
    for group, reward in zip(inputs.groups, inputs.rewards.tolist(), strict=True):
        baseline = inputs.memory.get(group, 0.0)
        advantages.append(reward - baseline)
        inputs.memory[group] = 0.95 * baseline + (1 - 0.95) * reward
    return inputs.on_every_token(torch.tensor(advantages, device=inputs.mask.device))


rae = AdvantageEstimator(_rae, ("role", "agent_index"), kl_loss="k3")
"""Role-conditioned advantage estimation of SPIRAL (arXiv 2506.24119)."""
