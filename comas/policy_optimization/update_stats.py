"""The metrics of a policy update."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class UpdateStats:
    """The metrics of one policy update (``comas/run/metrics/metrics.md``); the defaults are those
    of an empty buffer.

    ``kl`` and mismatch are measured before the update: over the first optimiser step's
    samples, or over all if a forward pass before the update computed their log-probs.
    """

    policy_loss: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    clip_fraction: float = 0.0
    gradient_norm: float = 0.0
    num_tokens: int = 0
    num_samples: int = 0
    num_optimizer_steps: int = 0
    num_skipped_steps: int = 0
    learning_rate: float
    mismatch_mean: float = 0.0
    mismatch_max: float = 0.0
    corrected_share: float = 0.0
    advantages: tuple[Sequence[float], ...] = ()
    """The advantage of each response token of each sample, in buffer order, 0 if it was not
    sampled; empty for losses over pairs."""
