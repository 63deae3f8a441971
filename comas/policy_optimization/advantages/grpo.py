"""GRPO: each reward relative to its group."""

from collections import defaultdict
from collections.abc import Hashable

import torch

from comas.policy_optimization.advantages.inputs import AdvantageInputs

STD_EPSILON = 1e-9


def grpo(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T], the same on every token of a response (zeros where masked)::

        A = (r - mean(group)) / (std(group) + 1e-9)

    with the sample standard deviation (divisor n - 1), as OpenRLHF's "group_norm" and TRL
    have it; the paper does not say which. Groups may have any sizes; a response alone in its
    group has advantage 0. Discount and KL are not read: GRPO's KL is a term of the loss.
    Source: DeepSeekMath, arXiv 2402.03300.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, group in enumerate(inputs.groups):
        members[group].append(index)
    rewards = inputs.rewards.double()
    advantages = torch.zeros_like(rewards)
    for indices in members.values():
        if len(indices) > 1:
            advantages[indices] = _standardized(rewards[indices])
    return (advantages[:, None] * inputs.mask).float()


def _standardized(rewards: torch.Tensor) -> torch.Tensor:
    # Equal rewards are exactly 0: the rounding of their mean must not be divided by 1e-9.
    if torch.all(rewards == rewards[0]):
        return torch.zeros_like(rewards)
    return (rewards - rewards.mean()) / (rewards.std(unbiased=True) + STD_EPSILON)
