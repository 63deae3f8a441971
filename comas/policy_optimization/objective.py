"""The loss of an update, as the configuration puts it together."""

import torch

from comas.config.schema import Optimization
from comas.policy_optimization import AdvantageEstimator
from comas.policy_optimization.losses import (
    ROLLOUT_CORRECTIONS,
    RolloutCorrection,
    StepTotals,
    Surrogate,
    clipped_surrogate,
    dpo_loss,
    kl_penalty,
)
from comas.policy_optimization.targets import Targets


def policy_loss(
    logprobs: torch.Tensor,
    *,
    rows: Targets,
    totals: StepTotals,
    optimization: Optimization,
    estimator: AdvantageEstimator,
) -> Surrogate:
    """A micro batch's share of the loss, and what was clipped and corrected in it.

    The clipped surrogate (eq. 11), plus the KL penalty where the estimator has it in the loss
    and not in the advantages; or the DPO loss of pairs, each a chosen and a rejected response.
    ``logprobs`` are [B, R], ``rows`` their targets.
    """
    if optimization.loss == "dpo":
        return _preference_loss(logprobs, rows=rows, totals=totals, beta=optimization.kl_coef)
    assert rows.advantages is not None
    aggregation = loss_aggregation(optimization, estimator)
    surrogate = clipped_surrogate(
        logprobs,
        old_logprobs=logprobs.detach() if rows.old_logprobs is None else rows.old_logprobs,
        advantages=rows.advantages,
        mask=rows.mask,
        clip_epsilon=optimization.clip_epsilon,
        clip_epsilon_high=optimization.clip_epsilon_high,
        dual_clip=optimization.dual_clip,
        rollout_logprobs=rows.rollout_logprobs,
        correction=rollout_correction(optimization),
        aggregation=aggregation,
        totals=totals,
    )
    if rows.reference_logprobs is None or estimator.kl_loss is None:
        return surrogate
    penalty = kl_penalty(
        logprobs,
        reference_logprobs=rows.reference_logprobs,
        mask=rows.mask,
        estimator=estimator.kl_loss,
        aggregation=aggregation,
        totals=totals,
    )
    return surrogate._replace(loss=surrogate.loss + optimization.kl_coef * penalty)


def needs_pass_beforehand(
    optimization: Optimization, estimator: AdvantageEstimator, *, num_optimizer_steps: int
) -> bool:
    """Whether the policy's log-probs before the update take a forward pass of their own.

    Advantages that hold the KL penalty need them, since every gradient needs the advantages. So
    do importance ratios, unless the old log-probs are the rollout engine's, or there is one
    optimiser step, whose own forward pass gives the same.
    """
    if optimization.loss == "dpo":
        return False
    penalises_rewards = optimization.kl_coef > 0 and estimator.kl_loss is None
    recomputes = optimization.old_logprobs == "recomputed"
    return penalises_rewards or (recomputes and num_optimizer_steps > 1)


def _preference_loss(
    logprobs: torch.Tensor, *, rows: Targets, totals: StepTotals, beta: float
) -> Surrogate:
    assert rows.reference_logprobs is not None
    loss = dpo_loss(
        logprobs,
        reference_logprobs=rows.reference_logprobs,
        mask=rows.mask,
        beta=beta,
        totals=totals,
    )
    none = torch.zeros_like(loss)
    return Surrogate(loss, none, none, none)


def loss_aggregation(optimization: Optimization, estimator: AdvantageEstimator) -> str:
    """The configured aggregation, or else the estimator's, or else the mean over all tokens."""
    return optimization.loss_aggregation or estimator.loss_aggregation or "token_mean"


def rollout_correction(optimization: Optimization) -> RolloutCorrection | None:
    """The configured correction with its bounds, its own or the configured ones."""
    correction = ROLLOUT_CORRECTIONS[optimization.rollout_correction]
    if correction is None or optimization.rollout_ratio_bounds is None:
        return correction
    low, high = optimization.rollout_ratio_bounds
    return correction._replace(bounds=(low, high))
