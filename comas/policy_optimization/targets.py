"""What the policy loss needs to know about a buffer before an update."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields

import torch

from comas.policy_optimization import AdvantageEstimator
from comas.policy_optimization.advantages.inputs import AdvantageInputs
from comas.policy_optimization.losses import approximate_kl
from comas.policy_optimization.samples import group_keys
from comas.types import TrainingSample


@dataclass(frozen=True)
class Targets:
    """Per-token constants of an update, for a whole buffer or some of its rows."""

    mask: torch.Tensor
    """[N, T] bool: True = trained response token."""
    advantages: torch.Tensor | None
    """[N, T]; None where pairs are compared."""
    old_logprobs: torch.Tensor | None
    """[N, T]: log pi_old; None where those of the update's own forward pass are the old ones."""
    policy_logprobs: torch.Tensor | None
    """[N, T]: log pi_theta before the update; None where no pass of its own computed it."""
    reference_logprobs: torch.Tensor | None
    """[N, T]: log pi_ref; None without a reference model."""
    rollout_logprobs: torch.Tensor
    """[N, T]: those of the engine that sampled, 0 where padded."""

    def rows(self, indices: Sequence[int], width: int) -> "Targets":
        """The given samples, cut to the ``width`` of their longest response."""
        chosen = list(indices)

        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return Targets(**{k: None if v is None else v[chosen, :width] for k, v in values.items()})

    def advantages_by_sample(self) -> tuple[tuple[float, ...], ...]:
        """The advantages of each sample's response tokens; none where pairs are compared.

        Example: advantages ``[[1.5, 1.5], [-2.0, 0.0]]`` of responses of 2 tokens and 1 token give
        ``((1.5, 1.5), (-2.0,))``.
        """
        if self.advantages is None:
            return ()
        rows = zip(self.advantages.cpu(), self.mask.cpu(), strict=True)
        return tuple(tuple(row[mask].tolist()) for row, mask in rows)


def compute_advantages(
    samples: Sequence[TrainingSample],
    *,
    mask: torch.Tensor,
    k1: torch.Tensor,
    estimator: AdvantageEstimator,
    group_by: Sequence[str] | None,
    discount: float,
    kl_coef: float,
    memory: dict[Hashable, float],
) -> torch.Tensor:
    """Advantages [N, T] of one policy's whole buffer (never of a shard of it).

    ``group_by`` None: the estimator's own groups. ``memory`` is what the estimator has kept from
    the policy's earlier updates, and is changed by those that keep something.
    """
    rewards = torch.tensor([sample.reward for sample in samples], dtype=torch.float32)
    return estimator.advantages(
        AdvantageInputs(
            rewards=rewards.to(mask.device),
            mask=mask,
            k1=k1,
            groups=group_keys(samples, estimator.group_by if group_by is None else group_by),
            discount=discount,
            kl_coef=kl_coef,
            memory=memory,
        )
    )


def k1_to_reference(
    logprobs: torch.Tensor | None, reference_logprobs: torch.Tensor | None, mask: torch.Tensor
) -> torch.Tensor:
    """log(pi_theta / pi_ref) [N, T] of each response token; zeros without a reference."""
    if logprobs is None or reference_logprobs is None:
        return torch.zeros(mask.shape, device=mask.device)
    return approximate_kl(logprobs, reference_logprobs, estimator="k1") * mask
