"""The loss of an update, as the configuration puts it together."""

import torch

from comas.config.schema import Optimization
from comas.policy_optimization import AdvantageEstimator
from comas.policy_optimization.losses import StepTotals, clipped_surrogate, kl_penalty
from comas.policy_optimization.targets import Targets


def policy_loss(
    logprobs: torch.Tensor,
    *,
    rows: Targets,
    totals: StepTotals,
    optimization: Optimization,
    estimator: AdvantageEstimator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A micro batch's share of the loss, and its number of clipped tokens.

    The clipped surrogate (eq. 11), plus the KL penalty where the estimator has it in the loss
    and not in the advantages. ``logprobs`` are [B, R], ``rows`` their targets.
    """
    aggregation = loss_aggregation(optimization, estimator)
    loss, num_clipped = clipped_surrogate(
        logprobs,
        old_logprobs=logprobs.detach() if rows.old_logprobs is None else rows.old_logprobs,
        advantages=rows.advantages,
        mask=rows.mask,
        clip_epsilon=optimization.clip_epsilon,
        aggregation=aggregation,
        totals=totals,
    )
    if rows.reference_logprobs is not None and estimator.kl_loss is not None:
        loss = loss + optimization.kl_coef * kl_penalty(
            logprobs,
            reference_logprobs=rows.reference_logprobs,
            mask=rows.mask,
            estimator=estimator.kl_loss,
            aggregation=aggregation,
            totals=totals,
        )
    return loss, num_clipped


def loss_aggregation(optimization: Optimization, estimator: AdvantageEstimator) -> str:
    """The configured aggregation, or else the estimator's, or else the mean over all tokens."""
    return optimization.loss_aggregation or estimator.loss_aggregation or "token_mean"
