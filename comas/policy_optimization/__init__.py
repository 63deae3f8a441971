"""Policy optimisation: advantages, batches and losses on plain tensors. A new estimator is
one file under ``advantages/`` and one line here."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch

from comas.policy_optimization.advantages.grpo import grpo
from comas.policy_optimization.advantages.inputs import AdvantageInputs
from comas.policy_optimization.advantages.reinforce_pp import reinforce_pp


class AdvantageEstimator(NamedTuple):
    """How advantages are computed, and where the KL penalty goes."""

    advantages: Callable[[AdvantageInputs], torch.Tensor]
    """The whole buffer to advantages [N, T]."""
    kl_loss: Literal["k2", "k3"] | None
    """Estimator of a KL term in the loss; None: the penalty is part of the advantages."""
    needs_groups: bool
    """Whether samples are compared within ``optimization.group_by``."""
    reads_discount: bool
    """Whether ``optimization.discount`` enters; otherwise it has to be 1."""


ADVANTAGE_ESTIMATORS: dict[str, AdvantageEstimator] = {
    "reinforce_pp": AdvantageEstimator(
        reinforce_pp, kl_loss=None, needs_groups=False, reads_discount=True
    ),
    "grpo": AdvantageEstimator(grpo, kl_loss="k3", needs_groups=True, reads_discount=False),
}
