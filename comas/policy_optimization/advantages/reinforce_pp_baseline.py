"""REINFORCE++ with the group's mean as baseline."""

import torch

from comas.policy_optimization.advantages.groups import centered, within_groups
from comas.policy_optimization.advantages.inputs import AdvantageInputs
from comas.policy_optimization.advantages.reinforce_pp import whiten


def reinforce_pp_baseline(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T], the same on every token of a response (zeros where masked).

    The mean of a response's group is taken off its reward, and the differences are whitened
    over all response tokens of the buffer, as in ``reinforce_pp``. The KL penalty is a term of
    the loss (k2) and not part of the returns, so there is nothing to discount either.
    Source: arXiv 2501.03262; parity with OpenRLHF's "reinforce_baseline" is tested.
    """
    advantages = within_groups(inputs.rewards, inputs.groups, centered)
    return whiten(advantages[:, None].expand(inputs.mask.shape), inputs.mask)
