"""The optimiser of an update: batches, learning rate, AdamW."""

from dataclasses import dataclass
from typing import Literal

from comas.config.keys import key


@dataclass
class Optimization:
    """How one policy's update steps its weights."""

    train_batch_size: int | None = key(64, ge=1)
    """Samples per optimiser step, of which dpo makes half as many pairs; null: the whole buffer in
    one."""
    epochs_per_buffer: int = key(1, ge=1)
    """Passes over the samples of an update."""
    optimizer: str = key("adamw", leads_to="plug-in")
    """What steps the weights: adamw, with the paper's betas of 0.9 and 0.95, or a plug-in, a
    function from the trained parameters by name and these settings to a
    ``torch.optim.Optimizer``."""
    learning_rate: float = key(1e-6, gt=0, le=1)
    """Learning rate after the warm-up; see ``society.learning_rates``."""
    lr_schedule: Literal["constant_with_warmup", "cosine", "linear"] = key("constant_with_warmup")
    """Schedule of the learning rate: after the warm-up it stays, or falls to a tenth over the
    optimiser steps that the run is expected to make (its first lines say how many)."""
    warmup_steps: int = key(5, ge=0)
    """Optimiser steps of linear warm-up; the first is not at 0."""
    weight_decay: float = key(0.0, ge=0)
    """Weight decay of AdamW."""
    max_grad_norm: float = key(1.0, gt=0)
    """Gradients with a greater norm are scaled down to it."""
    gradient_norm_by_role: bool = key(False)
    """Whether metrics hold the norm of each role's gradient in the first optimiser step of an
    update, which is computed once more for them."""
