"""How samples become an update of the weights."""

from dataclasses import dataclass
from typing import Any

from comas.config.keys import key


@dataclass
class Optimization:
    """Advantages, loss and optimiser of one policy's update."""

    loss: str = key("clipped_surrogate", one_of=("clipped_surrogate", "dpo"))
    """The loss over advantages (clipped_surrogate) or over pairs (dpo): the response of the highest
    reward against that of the lowest, among an agent's responses to the same prompt."""
    estimator: str = key("reinforce_pp", leads_to="plug-in")
    """Name in ``comas.policy_optimization.ADVANTAGE_ESTIMATORS``, or a plug-in."""
    group_by: list[str] | None = key(None, example=["question_id", "role"])
    """Fields of a sample that make its group, such as question_id, role, agent_index; null: those
    of the estimator."""
    role_weights: dict[str, Any] = key({}, example={"scoring": 0.1})
    """Role -> what its advantages are multiplied with; 1 where it is not named. Below 1 an agent
    learns more slowly in that role, at 0 not at all."""
    discount: float = key(1.0, above=0, at_most=1)
    """gamma of the token returns."""
    kl_coef: float = key(0.0, at_least=0, formerly="optimization.kl_weight")
    """beta of the KL penalty, or of dpo; a reference model is loaded only when it is above 0."""
    clip_epsilon: float = key(0.2, above=0, at_most=1)
    """epsilon: importance ratios are clipped to [1 - epsilon, 1 + epsilon]."""
    clip_epsilon_high: float | None = key(None, above=0, example=0.28)
    """The epsilon above 1 alone (clip-higher); null: ``clip_epsilon`` on both sides."""
    dual_clip: float | None = key(None, above=1, example=3.0)
    """The loss of a token of negative advantage A is at most -A times this (dual clip); null: it
    has no bound."""
    loss_aggregation: str | None = key(
        None, one_of=("token_mean", "sequence_mean", "constant_length"), example="token_mean"
    )
    """Mean of the loss over all tokens; over the means of the responses; or its sum by the number
    of responses times ``rollout.max_response_tokens``. null: the estimator's, if it has one, else
    token_mean."""
    mask_truncated: bool = key(True)
    """Leave responses cut off by the token limit out of the loss and of the advantages."""
    overlong_buffer_tokens: int | None = key(None, at_least=1, example=1024)
    """Length penalty: over the last so many tokens below ``rollout.max_response_tokens``, a
    response's reward falls evenly by 1 (DAPO's soft overlong punishment); null: none."""
    old_logprobs: str = key("recomputed", one_of=("recomputed", "rollout"))
    """Denominator of the importance ratio: the policy's own log-probs before the update, which take
    a forward pass where there are several optimiser steps; or those of the rollout engine."""
    rollout_correction: str = key("none", one_of=("none", "tis", "icepop", "seq_mask_tis"))
    """Weigh each token's loss by pi_policy / pi_rollout before the update: clipped (tis), without
    tokens (icepop) or responses (seq_mask_tis: by the geometric mean) beyond the bounds."""
    rollout_ratio_bounds: list[float] | None = key(None, example=[0.5, 5.0])
    """The lowest and the highest ratio; null: [0, 2] for tis, [0.5, 5] for icepop and
    seq_mask_tis."""
    mismatch_warning: float = key(0.1, above=0)
    """Warn when the mean |policy - rollout| log-prob difference of a step is above this; not read
    with a ``training.max_staleness`` above 0."""
    train_batch_size: int | None = key(64, at_least=1)
    """Samples per optimiser step, of which dpo makes half as many pairs; null: the whole buffer in
    one."""
    epochs_per_buffer: int = key(1, at_least=1)
    """Passes over the samples of an update."""
    learning_rate: float = key(1e-6, above=0, at_most=1)
    """Learning rate of AdamW after the warm-up; see ``society.learning_rates``."""
    lr_schedule: str = key(
        "constant_with_warmup", one_of=("constant_with_warmup", "cosine", "linear")
    )
    """Schedule of the learning rate, as in transformers: after the warm-up it stays, or falls over
    the optimiser steps that the run is expected to make (its first lines say how many)."""
    warmup_steps: int = key(5, at_least=0)
    """Optimiser steps of linear warm-up; the first is not at 0."""
    final_lr_ratio: float = key(0.0, at_least=0, at_most=1)
    """Share of the learning rate to which cosine and linear fall, and at which they stay."""
    weight_decay: float = key(0.0, at_least=0)
    """Weight decay of AdamW."""
    betas: list[float] = key([0.9, 0.95])
    """AdamW's two betas, each at least 0 and below 1."""
    max_grad_norm: float = key(1.0, above=0, formerly="optimization.gradient_clip")
    """Gradients with a greater norm are scaled down to it."""
