"""The optimiser: batches, learning rate, AdamW."""

from dataclasses import dataclass
from typing import Literal

from comas.config.keys import key


@dataclass
class Optimization:
    """The optimiser of each policy."""

    train_batch_size: int | None = key(64, ge=1)
    """Samples per optimiser step (for dpo two per pair); null: the whole buffer."""
    epochs_per_buffer: int = key(1, ge=1)
    """Passes over the samples of an update."""
    optimizer: str = key("adamw", leads_to="plug-in")
    """adamw, with the paper's betas of 0.9 and 0.95, or a plug-in: a function from the trained
    parameters by name and these settings to a ``torch.optim.Optimizer``."""
    learning_rate: float = key(1e-6, gt=0, le=1)
    """Learning rate after the warm-up; see ``society.learning_rates``."""
    lr_schedule: Literal["constant_with_warmup", "cosine", "linear"] = key("constant_with_warmup")
    """Learning rate after the warm-up: constant, or falling to a tenth over the expected optimiser
    steps of the run (which its first lines name)."""
    warmup_steps: int = key(5, ge=0)
    """Optimiser steps of linear warm-up; the first is above 0."""
    weight_decay: float = key(0.0, ge=0)
    """Weight decay of AdamW."""
    max_grad_norm: float = key(1.0, gt=0)
    """Gradients with a larger norm are clipped to it."""
