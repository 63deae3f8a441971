"""Statistics of an update, summed over its micro batches."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import distributed

from comas.policy_optimization.batching import response_rows
from comas.policy_optimization.losses import Surrogate, Targets, log_ratios
from comas.policy_optimization.update_stats import UpdateStats
from comas.types import TrainingSample


@dataclass
class UpdateSums:
    """Sums over an update's micro batches; tensors hold this rank's share."""

    logprobs: torch.Tensor
    """[N, T]: log-probs before the update, of the first optimiser step's samples."""
    gradient_norms: list[float | None] = field(default_factory=list)
    """Gradient norm of each optimiser step; None if the step was skipped."""
    num_tokens: int = 0
    learning_rate: float = 0.0
    """The learning rate of the last optimiser step."""

    def __post_init__(self) -> None:
        self.counts = self.logprobs.new_zeros(4)
        """Sums of losses, entropies (nats), clipped tokens and corrected tokens."""

    def add(self, surrogate: Surrogate, entropies: torch.Tensor) -> None:
        """Add a micro batch with its entropies [B, R], 0 where padded."""
        loss, *counted = surrogate
        counts = [loss.detach(), entropies.sum(), *(count.float() for count in counted)]
        self.counts += torch.stack(counts)

    def statistics(
        self, samples: Sequence[TrainingSample], targets: Targets, *, first_step: Sequence[int]
    ) -> UpdateStats:
        """Return the finished update's statistics over all ranks (collective).

        If no pass before the update computed the policy's log-probs, those of the first optimiser
        step are used, for its samples ``first_step``.
        """
        for share in (self.logprobs, self.counts):
            distributed.all_reduce(share)
        loss, entropy, num_clipped, num_corrected = self.counts.tolist()
        known, before = targets.mask, targets.policy_logprobs
        if before is None:
            known, before = torch.zeros_like(known), self.logprobs
            known[list(first_step)] = targets.mask[list(first_step)]
        mismatch = (before - targets.rollout_logprobs)[known].abs()
        norms = [norm for norm in self.gradient_norms if norm is not None]
        return UpdateStats(
            policy_loss=loss / distributed.get_world_size() / len(self.gradient_norms),
            kl=log_ratios(before, targets.reference_logprobs, known)[known].mean().item(),
            entropy=entropy / self.num_tokens,
            clip_fraction=num_clipped / self.num_tokens,
            gradient_norm=sum(norms) / len(norms) if norms else torch.nan,
            num_tokens=int(targets.mask.sum()),
            num_samples=targets.mask.shape[0],
            num_optimizer_steps=len(norms),
            num_skipped_steps=len(self.gradient_norms) - len(norms),
            learning_rate=self.learning_rate,
            mismatch_mean=mismatch.mean().item(),
            mismatch_max=mismatch.max().item(),
            corrected_share=num_corrected / self.num_tokens,
            advantages=tuple(response_rows(targets.advantages, samples)),
        )
