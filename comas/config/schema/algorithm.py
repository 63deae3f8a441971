"""The training algorithm (``algorithm.name`` chooses one of these types, each of which has only the
keys that it reads) and its optimiser."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from comas.config.keys import key

GroupKey = Literal["agent_index", "question_id", "discussion_id", "round_index", "role"]
"""A field of a sample by which an estimator may group."""
GROUP_KEYS: tuple[str, ...] = get_args(GroupKey)
Correction = Literal["none", "ratio", "tis", "icepop", "seq_mask_tis"]
Name = Literal["reinforce_pp", "grpo", "custom", "dpo"]
Weight = Annotated[float, Field(ge=0)]


@dataclass
class AnyAlgorithm:
    """The keys of all types."""

    name: Name = key("reinforce_pp")
    """The type: reinforce_pp, grpo, dpo, or custom for any estimator with any loss."""
    mask_truncated: bool = key(True)
    """Leave responses cut off by the token limit out of the update."""

    @property
    def uses_reference(self) -> bool:
        """True if the update needs a reference model: for a KL penalty, and always for DPO."""
        return not isinstance(self, PolicyGradient) or self.kl_coef > 0


@dataclass
class PolicyGradient(AnyAlgorithm):
    """The keys of all types with a loss over advantages."""

    role_weights: dict[str, Weight] = key({}, example={"scoring": 0.1})
    """Role -> factor of its advantages, by default 1. Below 1 an agent learns more slowly in that
    role, at 0 not at all but for a KL term in the loss."""
    kl_coef: float = key(0.0, ge=0)
    """beta of the KL penalty; above 0 a reference model is loaded. The estimator decides whether
    the penalty is part of the advantages or of the loss; a function of your own is to subtract it
    (``AdvantageInputs.log_ratios``)."""
    clip_epsilon: float = key(0.2, gt=0, le=1)
    """epsilon: importance ratios are clipped to [1 - epsilon, 1 + epsilon]."""
    clip_epsilon_high: float | None = key(None, gt=0, example=0.28)
    """The epsilon above 1 (clip-higher); null: ``clip_epsilon`` on both sides."""
    loss_aggregation: Literal["token_mean", "sequence_mean", "constant_length"] = key("token_mean")
    """Mean of the loss over all tokens; mean over responses of their means; or the sum divided by
    the number of responses times ``rollout.max_response_tokens``."""
    rollout_correction: Correction = key("none")
    """Correction of differences between the policy before the update and the rollout engine. ratio:
    the importance ratio uses the rollout engine's log-probs; the others weigh each token's loss by
    pi_policy / pi_rollout: clipped to [0, 2] (tis), without tokens (icepop) or responses
    (seq_mask_tis: by their geometric mean) outside [0.5, 5]."""


@dataclass
class ReinforcePP(PolicyGradient):
    """REINFORCE++, as in the paper (equations 9 to 11)."""

    name: Name = key("reinforce_pp")
    """reinforce_pp: advantages are whitened over the policy's whole buffer."""
    estimator: ClassVar[str] = "reinforce_pp"
    loss: ClassVar[str] = "clipped_surrogate"
    group_by: ClassVar[list[GroupKey] | None] = None


@dataclass
class Grpo(PolicyGradient):
    """GRPO (DeepSeekMath, arXiv 2402.03300)."""

    name: Name = key("grpo")
    """grpo: rewards are standardised within groups."""
    group_by: list[GroupKey] | None = key(["question_id", "role"])
    """Fields of a sample that make its group."""
    estimator: ClassVar[str] = "grpo"
    loss: ClassVar[str] = "clipped_surrogate"


@dataclass
class Custom(PolicyGradient):
    """Any estimator with any loss, shipped or a plug-in."""

    name: Name = key("custom")
    """custom: an estimator and a loss, by their names."""
    estimator: str = key("reinforce_pp", leads_to="plug-in")
    """Name in ``comas.policy_optimization.ADVANTAGE_ESTIMATORS``, or a plug-in."""
    loss: str = key("clipped_surrogate", leads_to="plug-in")
    """Name in ``comas.policy_optimization.LOSSES``, or a plug-in."""
    group_by: list[GroupKey] | None = key(None, example=["question_id", "role"])
    """Fields of a sample that make its group; null: those of the estimator."""


@dataclass
class Dpo(AnyAlgorithm):
    """DPO (arXiv 2305.18290): of an agent's responses to the same prompt, the one with the highest
    reward against the one with the lowest."""

    name: Name = key("dpo")
    """dpo: compares pairs of responses."""
    beta: float = key(0.1, gt=0)
    """beta: how close the policy stays to its base model, the reference."""


Algorithm = ReinforcePP | Grpo | Custom | Dpo


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
    """Learning rate after the warm-up: constant, or falling to a tenth over the optimiser steps
    that a run's first lines name, as if every turn were trained."""
    warmup_steps: int = key(5, ge=0)
    """Optimiser steps of linear warm-up; the first is above 0."""
    weight_decay: float = key(0.0, ge=0)
    """Weight decay of AdamW."""
    max_grad_norm: float = key(1.0, gt=0)
    """Gradients with a larger norm are clipped to it."""
