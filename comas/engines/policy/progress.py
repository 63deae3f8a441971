"""What an update adds up on the way, and what it reports in the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import distributed

from comas.policy_optimization.losses import Surrogate
from comas.policy_optimization.targets import Targets, k1_to_reference
from comas.types import UpdateStats


@dataclass
class Progress:
    """Sums over an update's optimiser steps; tensors hold this rank's share."""

    logprobs: torch.Tensor
    """[N, T]: those of the first optimiser step's samples, which are from before the update."""
    loss: torch.Tensor
    entropy: torch.Tensor
    """Of all response tokens together, in nats."""
    num_clipped: torch.Tensor
    num_corrected: torch.Tensor
    num_correctable: torch.Tensor
    gradient_norm: float = 0.0
    num_tokens: int = 0
    num_steps: int = 0
    """Optimiser steps, skipped ones included."""
    num_skipped_steps: int = 0
    learning_rate: float = 0.0
    """That of the last optimiser step."""

    @classmethod
    def start(cls, mask: torch.Tensor) -> Self:
        """Nothing done yet, on a buffer of this mask [N, T]."""
        sums = torch.zeros(5, device=mask.device).unbind()
        return cls(torch.zeros(mask.shape, device=mask.device), *sums)

    def add(self, surrogate: Surrogate, entropies: torch.Tensor) -> None:
        """Count a micro batch with its entropies [B, R], 0 where padded."""
        self.loss += surrogate.loss.detach()
        self.entropy += entropies.sum()
        self.num_clipped += surrogate.num_clipped
        self.num_corrected += surrogate.num_corrected
        self.num_correctable += surrogate.num_correctable

    def statistics(self, targets: Targets, *, first_step: Sequence[int]) -> UpdateStats:
        """The finished update's report, over all ranks (collective).

        Where no pass before the update computed the policy's log-probs, those are taken that the
        first optimiser step saw, of its samples ``first_step``: all of them, or a part drawn at
        random.
        """
        counted = (self.entropy, self.num_clipped, self.num_corrected, self.num_correctable)
        for share in (self.logprobs, self.loss, *counted):
            distributed.all_reduce(share)
        known, before = targets.mask, targets.policy_logprobs
        if before is None:
            known, before = torch.zeros_like(known), self.logprobs
            known[list(first_step)] = targets.mask[list(first_step)]
        log_ratio = (before - targets.rollout_logprobs)[known]
        mismatch, ratio = log_ratio.abs(), log_ratio.exp()
        loss = self.loss.item() / distributed.get_world_size()
        num_applied = self.num_steps - self.num_skipped_steps
        return UpdateStats(
            policy_loss=loss / self.num_steps,
            kl=k1_to_reference(before, targets.reference_logprobs, known)[known].mean().item(),
            entropy=self.entropy.item() / self.num_tokens,
            clip_fraction=self.num_clipped.item() / self.num_tokens,
            gradient_norm=self.gradient_norm / max(num_applied, 1),
            num_tokens=int(targets.mask.sum()),
            num_samples=targets.mask.shape[0],
            num_optimizer_steps=num_applied,
            num_skipped_steps=self.num_skipped_steps,
            learning_rate=self.learning_rate,
            mismatch_mean=mismatch.mean().item(),
            mismatch_max=mismatch.max().item(),
            rollout_ratio_mean=ratio.mean().item(),
            rollout_ratio_max=ratio.max().item(),
            corrected_share=self.num_corrected.item() / max(self.num_correctable.item(), 1),
            advantages=targets.advantages_by_sample(),
        )


def no_update(learning_rate: float) -> UpdateStats:
    """The report on an empty buffer."""
    return UpdateStats(
        policy_loss=0.0,
        kl=0.0,
        entropy=0.0,
        clip_fraction=0.0,
        gradient_norm=0.0,
        num_tokens=0,
        num_samples=0,
        num_optimizer_steps=0,
        num_skipped_steps=0,
        learning_rate=learning_rate,
        mismatch_mean=0.0,
        mismatch_max=0.0,
        rollout_ratio_mean=1.0,
        rollout_ratio_max=1.0,
        corrected_share=0.0,
        advantages=(),
    )
