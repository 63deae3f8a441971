"""The clipped surrogate and the KL term, on OpenRLHF's functions.

Every sum over a micro batch is divided by the totals of the whole optimiser step, over all
ranks, so the gradient depends neither on the micro batches nor on the number of ranks.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from comas.policy_optimization.openrlhf_import import openrlhf_module

TOKEN_LEVEL = {"token_mean": True, "sequence_mean": False, "constant_length": True}
"""Loss aggregation: the mean over all tokens; over each response's tokens and then responses; or
the sum over all tokens by what they would be if every response had the greatest length."""


@dataclass(frozen=True)
class StepTotals:
    """What one optimiser step holds in all its micro batches on all ranks."""

    num_tokens: int
    """Response tokens: the denominator of "token_mean"."""
    num_samples: int
    """Responses: the denominator of "sequence_mean"."""
    max_response_tokens: int
    """The greatest length of a response: with ``num_samples`` the denominator of
    "constant_length"."""
    num_ranks: int
    """Factor on the loss, since DeepSpeed averages the ranks' gradients."""


def clipped_surrogate(
    logprobs: torch.Tensor,
    *,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    clip_epsilon: float,
    aggregation: str,
    totals: StepTotals,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A micro batch's share of the policy loss, and its number of clipped tokens.

    The loss of a token is equation 11, with rho = pi_theta / pi_old::

        -min(rho * A, clip(rho, 1 - eps, 1 + eps) * A)

    averaged as ``aggregation`` says (a key of ``TOKEN_LEVEL``). All tensors are [B, R],
    ``mask`` True = trained.
    """
    policy_loss = openrlhf_module("loss").PolicyLoss(
        clip_eps_low=clip_epsilon,
        clip_eps_high=clip_epsilon,
        token_level_loss=TOKEN_LEVEL[aggregation],
    )
    weights = mask.to(logprobs.dtype)
    loss, clip_ratio, *_ = policy_loss(
        logprobs,
        old_logprobs,
        advantages,
        action_mask=weights,
        **_denominators(aggregation, totals),
    )
    # The ratio of an empty micro batch is 0 / 0, and its number of clipped tokens is 0.
    num_clipped = torch.where(mask.any(), clip_ratio * mask.sum(), torch.zeros_like(clip_ratio))
    return loss, num_clipped.detach()


def kl_penalty(
    logprobs: torch.Tensor,
    *,
    reference_logprobs: torch.Tensor,
    mask: torch.Tensor,
    estimator: Literal["k2", "k3"],
    aggregation: str,
    totals: StepTotals,
) -> torch.Tensor:
    """A micro batch's share of the mean KL(pi_theta || pi_ref) as a differentiable loss.

    k3 = exp(ref - lp) - 1 - (ref - lp) (DeepSeekMath), k2 = (lp - ref)^2 / 2; aggregated as
    the policy loss is.
    """
    kl = approximate_kl(logprobs, reference_logprobs, estimator=estimator)
    return openrlhf_module("loss").aggregate_loss(
        kl,
        mask.to(kl.dtype),
        token_level_loss=TOKEN_LEVEL[aggregation],
        **_denominators(aggregation, totals),
    )


def approximate_kl(
    logprobs: torch.Tensor, reference_logprobs: torch.Tensor, *, estimator: str
) -> torch.Tensor:
    """Per-token estimate of KL(pi_theta || pi_ref): "k1", "k2" or "k3" (Schulman).

    OpenRLHF clamps each token's estimate to [-10, 10].
    """
    return openrlhf_module("utils").compute_approx_kl(
        logprobs, reference_logprobs, kl_estimator=estimator
    )


def _denominators(aggregation: str, totals: StepTotals) -> dict[str, int]:
    longest = totals.num_samples * totals.max_response_tokens
    return {
        "dp_size": totals.num_ranks,
        "batch_num_tokens": longest if aggregation == "constant_length" else totals.num_tokens,
        "global_batch_size": totals.num_samples,
    }
