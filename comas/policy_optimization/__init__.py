"""Policy optimisation: advantages, batches and losses on plain tensors. A new estimator is
one file under ``advantages/`` and one line here."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch

from comas.policy_optimization.advantages.at_grpo import at_grpo
from comas.policy_optimization.advantages.dr_grpo import dr_grpo
from comas.policy_optimization.advantages.dr_mas import dr_mas
from comas.policy_optimization.advantages.grpo import grpo
from comas.policy_optimization.advantages.inputs import AdvantageInputs
from comas.policy_optimization.advantages.rae import rae
from comas.policy_optimization.advantages.reinforce_pp import reinforce_pp
from comas.policy_optimization.advantages.reinforce_pp_baseline import reinforce_pp_baseline
from comas.policy_optimization.advantages.rloo import rloo


class AdvantageEstimator(NamedTuple):
    """How advantages are computed, and what belongs to them in the loss."""

    advantages: Callable[[AdvantageInputs], torch.Tensor]
    """The whole buffer to advantages [N, T]."""
    group_by: tuple[str, ...] = ()
    """Fields of a sample that make its group, unless ``optimization.group_by`` names others;
    none: samples are not compared by groups."""
    kl_loss: Literal["k2", "k3"] | None = None
    """Estimator of a KL term in the loss; None: the penalty is part of the advantages."""
    loss_aggregation: str | None = None
    """The only way in which its loss may be aggregated; None: as configured."""
    reads_discount: bool = False
    """Whether ``optimization.discount`` enters; otherwise it has to be 1."""

    @property
    def needs_others(self) -> bool:
        """Whether a response that is alone in its group has no advantage, whatever its reward.

        Found by asking for the advantages of two such responses, one rewarded and one not.
        """
        of_alone = AdvantageInputs(
            rewards=torch.tensor([1.0, 0.0]),
            mask=torch.ones(2, 1, dtype=torch.bool),
            k1=torch.zeros(2, 1),
            groups=["one", "other"],
            discount=1.0,
            kl_coef=0.0,
        )
        return not self.advantages(of_alone).any()


_BY_ROLE = ("question_id", "role")

ADVANTAGE_ESTIMATORS: dict[str, AdvantageEstimator] = {
    "reinforce_pp": AdvantageEstimator(reinforce_pp, reads_discount=True),
    "reinforce_pp_baseline": AdvantageEstimator(reinforce_pp_baseline, _BY_ROLE, kl_loss="k2"),
    "grpo": AdvantageEstimator(grpo, _BY_ROLE, kl_loss="k3"),
    "dr_grpo": AdvantageEstimator(
        dr_grpo, _BY_ROLE, kl_loss="k3", loss_aggregation="constant_length"
    ),
    "rloo": AdvantageEstimator(rloo, _BY_ROLE),
    "dr_mas": AdvantageEstimator(dr_mas, ("question_id", "role", "agent_index"), kl_loss="k3"),
    "at_grpo": AdvantageEstimator(
        at_grpo, ("question_id", "round_index", "role", "agent_index"), kl_loss="k3"
    ),
    "rae": AdvantageEstimator(rae, ("role", "agent_index"), kl_loss="k3"),
}
"""Advantage estimators, one file each."""
