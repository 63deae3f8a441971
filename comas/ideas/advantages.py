"""Advantage estimators beyond the paper's, each for ``algorithm.name=custom``, such as::

    algorithm: {name: custom, estimator: comas.ideas.advantages:dr_grpo}

All tokens of a response have the same advantage, and 0 where the mask is False. Estimators that
differ from ``grpo`` in their groups alone need no file: ``algorithm.group_by``.
"""

import torch

from comas.policy_optimization.advantages import (
    AdvantageEstimator,
    AdvantageInputs,
    centered,
    within_groups,
)


def _dr_grpo(inputs: AdvantageInputs) -> torch.Tensor:
    """r - mean(group)."""
    return inputs.on_every_token(within_groups(inputs.rewards, inputs.groups, centered))


dr_grpo = AdvantageEstimator(_dr_grpo, ("question_id", "role"), kl_loss="k3")
"""Dr. GRPO (arXiv 2503.20783). Dividing by the standard deviation favours questions that are too
easy or too hard, and dividing by a response's length favours long wrong answers: use it with
``loss_aggregation: constant_length``."""


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
