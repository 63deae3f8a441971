"""An advantage estimator beyond the paper's, for ``algorithm.name=custom``::

    algorithm: {name: custom, estimator: comas.ideas.advantages:rae}

Estimators that differ from ``grpo`` in their groups alone need no file: ``algorithm.group_by``.
"""

from collections import defaultdict
from typing import Any

import torch

from comas.policy_optimization.advantages import AdvantageEstimator, AdvantageInputs


def _rae(inputs: AdvantageInputs) -> torch.Tensor:
    """r - b on every token (0 where the mask is False), with a baseline b of each role and agent,
    updated after each discussion: b <- 0.95 b + 0.05 mean(r), of its responses there. b starts at
    0, and is kept between updates (``inputs.memory``).

    Example: the rewards 1, 1 of two discussions have advantages 1 and 0.95; b is then 0.0975.
    """
    advantages = torch.zeros_like(inputs.rewards)
    members = defaultdict[Any, list[int]](list)
    for index, group in enumerate(inputs.groups):
        members[group].append(index)
    for (_, *who), indices in members.items():
        rewards, baseline = inputs.rewards[indices], inputs.memory.get(key := (*who,), 0.0)
        advantages[indices] = rewards - baseline
        inputs.memory[key] = 0.95 * baseline + (1 - 0.95) * rewards.mean().item()
    return inputs.on_every_token(advantages)


rae = AdvantageEstimator(_rae, ("discussion_id", "role", "agent_index"), kl_loss="k3")
"""Role-conditioned advantage estimation of SPIRAL (arXiv 2506.24119)."""
