"""What an update adds up on the way, and what it reports in the end."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import distributed

from comas.policy_optimization.targets import Targets, k1_to_reference
from comas.types import UpdateStats


@dataclass
class Progress:
    """Sums over an update's optimiser steps; tensors hold this rank's share."""

    logprobs: torch.Tensor
    """[N, T]: log-probs of the last forward pass of each row."""
    loss: torch.Tensor
    num_clipped: torch.Tensor
    gradient_norm: float = 0.0
    num_tokens: int = 0
    num_steps: int = 0
    learning_rate: float = 0.0
    """That of the last optimiser step."""

    @classmethod
    def start(cls, mask: torch.Tensor) -> Self:
        """Nothing done yet, on a buffer of this mask [N, T]."""
        zero = torch.zeros((), device=mask.device)
        return cls(torch.zeros(mask.shape, device=mask.device), zero.clone(), zero)

    def statistics(self, targets: Targets, rollout_logprobs: torch.Tensor) -> UpdateStats:
        """The finished update's report, over all ranks (collective).

        Where no pass before the update computed the policy's log-probs, there was one
        optimiser step, and the log-probs it saw are those from before.
        """
        for share in (self.logprobs, self.loss, self.num_clipped):
            distributed.all_reduce(share)
        mask, before = targets.mask, targets.policy_logprobs
        if before is None:
            assert self.num_steps == 1
            before = self.logprobs
        mismatch = (before - rollout_logprobs).abs()[mask]
        loss = self.loss.item() / distributed.get_world_size()
        return UpdateStats(
            policy_loss=loss / self.num_steps,
            kl=k1_to_reference(before, targets.reference_logprobs, mask)[mask].mean().item(),
            clip_fraction=self.num_clipped.item() / self.num_tokens,
            gradient_norm=self.gradient_norm / self.num_steps,
            num_tokens=int(mask.sum()),
            num_samples=mask.shape[0],
            num_optimizer_steps=self.num_steps,
            learning_rate=self.learning_rate,
            mismatch_mean=mismatch.mean().item(),
            mismatch_max=mismatch.max().item(),
        )


def no_update(learning_rate: float) -> UpdateStats:
    """The report on an empty buffer."""
    return UpdateStats(
        policy_loss=0.0,
        kl=0.0,
        clip_fraction=0.0,
        gradient_norm=0.0,
        num_tokens=0,
        num_samples=0,
        num_optimizer_steps=0,
        learning_rate=learning_rate,
        mismatch_mean=0.0,
        mismatch_max=0.0,
    )
