"""Dr. GRPO: GRPO without the two divisions that bias it."""

import torch

from comas.policy_optimization.advantages.groups import centered, within_groups
from comas.policy_optimization.advantages.inputs import AdvantageInputs


def dr_grpo(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T], the same on every token of a response (zeros where masked)::

        A = r - mean(group)

    Dividing by the standard deviation would favour questions that are too easy or too hard,
    and dividing the loss by each response's own length would favour long wrong answers; its
    loss is therefore aggregated as "constant_length". A response alone in its group has
    advantage 0. KL is a term of the loss (k3), as in GRPO. Source: arXiv 2503.20783.
    """
    return inputs.on_every_token(within_groups(inputs.rewards, inputs.groups, centered))
