"""The clipped surrogate and the KL term, on OpenRLHF's functions, and the DPO loss.

Every sum over a micro batch is divided by the totals of the whole optimiser step, over all
ranks, so the gradient depends neither on the micro batches nor on the number of ranks.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch.nn.functional import logsigmoid

from comas.policy_optimization.openrlhf_import import openrlhf_module

TOKEN_LEVEL = {"token_mean": True, "sequence_mean": False, "constant_length": True}
"""Loss aggregation: the mean over all tokens; over each response's tokens and then responses; or
the sum over all tokens by what they would be if every response had the greatest length."""


class RolloutCorrection(NamedTuple):
    """What becomes of tokens whose ratio pi_policy / pi_rollout before the update is out of
    bounds."""

    level: Literal["token", "seq"]
    """What the ratio is of: each token, or the geometric mean over a response's tokens."""
    mode: Literal["clip", "mask"]
    """Weigh the loss by the ratio clipped to its bounds, or leave out what is beyond them and
    weigh the others by their tokens' ratios."""
    bounds: tuple[float, float]
    """Unless ``optimization.rollout_ratio_bounds`` says others."""


ROLLOUT_CORRECTIONS: dict[str, RolloutCorrection | None] = {
    "none": None,
    "tis": RolloutCorrection("token", "clip", (0.0, 2.0)),
    "icepop": RolloutCorrection("token", "mask", (0.5, 5.0)),
    "seq_mask_tis": RolloutCorrection("seq", "mask", (0.5, 5.0)),
}
"""Corrections of the mismatch between the rollout engine, which sampled, and the policy."""


class Surrogate(NamedTuple):
    """A micro batch's share of the policy loss, and what the loss did to it, as scalars."""

    loss: torch.Tensor
    num_clipped: torch.Tensor
    """Tokens whose gain was clipped (eq. 11)."""
    num_corrected: torch.Tensor
    """Tokens, or with the level "seq" responses, beyond the bounds of the correction."""
    num_correctable: torch.Tensor
    """Tokens or responses that the correction looked at."""


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
    clip_epsilon_high: float | None = None,
    dual_clip: float | None = None,
    rollout_logprobs: torch.Tensor | None = None,
    correction: RolloutCorrection | None = None,
    aggregation: str,
    totals: StepTotals,
) -> Surrogate:
    """A micro batch's share of the policy loss.

    The loss of a token is equation 11, with rho = pi_theta / pi_old::

        -min(rho * A, clip(rho, 1 - eps, 1 + eps) * A)

    averaged as ``aggregation`` says (a key of ``TOKEN_LEVEL``). ``clip_epsilon_high`` replaces
    the eps above 1 (DAPO's clip-higher, arXiv 2503.14476). With ``dual_clip`` c the loss of a
    token of negative advantage is at most -c * A (arXiv 1912.09729). ``correction`` weighs every
    token's loss by pi_old / pi_rollout, and needs ``rollout_logprobs``. All tensors are [B, R],
    ``mask`` True = trained.
    """
    level, mode, bounds = correction or ("off", "mask", (0.0, 0.0))
    policy_loss = openrlhf_module("loss").PolicyLoss(
        clip_eps_low=clip_epsilon,
        clip_eps_high=clip_epsilon if clip_epsilon_high is None else clip_epsilon_high,
        dual_clip=dual_clip,
        token_level_loss=TOKEN_LEVEL[aggregation],
        is_correction_level=level,
        is_correction_mode=mode,
        is_correction_threshold=bounds,
    )
    loss, clipped_share, _, _, corrected_share = policy_loss(
        logprobs,
        old_logprobs,
        advantages,
        action_mask=mask.to(logprobs.dtype),
        rollout_log_probs=rollout_logprobs,
        **_denominators(aggregation, totals),
    )
    units = mask.any(dim=1) if level == "seq" else mask
    none = torch.zeros_like(loss)
    return Surrogate(
        loss,
        # The shares of an empty micro batch are 0 / 0.
        torch.where(mask.any(), clipped_share * mask.sum(), none).detach(),
        none
        if correction is None
        else torch.where(mask.any(), corrected_share * units.sum(), none),
        none if correction is None else units.sum(),
    )


def dpo_loss(
    logprobs: torch.Tensor,
    *,
    reference_logprobs: torch.Tensor,
    mask: torch.Tensor,
    beta: float,
    totals: StepTotals,
) -> torch.Tensor:
    """A micro batch's share of the mean DPO loss over all pairs (eq. 7 of arXiv 2305.18290)::

        m(y) = sum over the tokens of y of log(pi_theta / pi_ref)
        loss = -log sigmoid(beta * (m(chosen) - m(rejected)))

    Rows are chosen and rejected in turn, [2P, R]; an empty micro batch has one row and no pair.
    Equal to OpenRLHF's DPOLoss, whose mean is over the micro batch's own pairs.
    """
    margins = ((logprobs - reference_logprobs) * mask).sum(dim=1)
    paired = margins[: len(margins) // 2 * 2]
    losses = -logsigmoid(beta * (paired[0::2] - paired[1::2]))
    return losses.sum() / (totals.num_samples / 2) * totals.num_ranks


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
