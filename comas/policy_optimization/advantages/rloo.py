"""RLOO: each return against the mean of the others in its group."""

import torch

from comas.policy_optimization.advantages.groups import centered, within_groups
from comas.policy_optimization.advantages.inputs import AdvantageInputs


def rloo(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T], the same on every token of a response (zeros where masked)::

        R = r - beta * sum over its tokens of log(pi_theta / pi_ref)
        A = R - mean of R over the n - 1 others of the group

    A response alone in its group has nothing to be compared with, and advantage 0.
    Source: arXiv 2402.14740.
    """
    penalties = (inputs.k1.double() * inputs.mask).sum(dim=1)
    returns = inputs.rewards.double() - inputs.kl_coef * penalties
    return inputs.on_every_token(within_groups(returns, inputs.groups, _against_the_others))


def _against_the_others(returns: torch.Tensor) -> torch.Tensor:
    # (sum - R) / (n - 1) is the mean of the others, so the difference is n / (n - 1) (R - mean).
    num = len(returns)
    return centered(returns) * (num / max(num - 1, 1))
