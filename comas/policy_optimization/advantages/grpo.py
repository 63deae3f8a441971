"""GRPO: each reward relative to its group."""

from functools import partial

import torch

from comas.policy_optimization.advantages.groups import standardized, within_groups
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
    relate = partial(standardized, epsilon=STD_EPSILON)
    return inputs.on_every_token(within_groups(inputs.rewards, inputs.groups, relate))
