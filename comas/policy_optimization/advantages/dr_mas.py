"""Dr. MAS: every agent's rewards relative to those of the same agent."""

import torch

from comas.policy_optimization.advantages.groups import standardized, within_groups
from comas.policy_optimization.advantages.inputs import AdvantageInputs

STD_EPSILON = 1e-6


def dr_mas(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T], the same on every token of a response (zeros where masked)::

        A = (r - mean(group)) / (std(group) + 1e-6)

    A group is all that one agent said about a question in one role, in any round and copy of the
    discussion: one mean for all would give those with other rewards large gradients. An agent of
    the paper has one role (search, answer, verify), here it has all of them, whose rewards differ
    as theirs do. A response alone in its group keeps mean 0 and standard deviation 1, so its
    advantage is its reward. KL is a term of the loss (k3). Source: arXiv 2602.08847.
    """
    return inputs.on_every_token(within_groups(inputs.rewards, inputs.groups, _standardized))


def _standardized(rewards: torch.Tensor) -> torch.Tensor:
    if len(rewards) == 1:
        return rewards / (1 + STD_EPSILON)
    return standardized(rewards, epsilon=STD_EPSILON)
