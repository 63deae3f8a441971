"""The loss of an update: the clipped surrogate and the KL term, on OpenRLHF's functions.

Every sum over a micro batch is divided by the totals of the whole optimiser step, over all
ranks, so the gradient depends neither on the micro batches nor on the number of ranks.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from comas.config.schema import Optimization
from comas.policy_optimization.advantages import ADVANTAGE_ESTIMATORS
from comas.policy_optimization.batching import StepTotals
from comas.policy_optimization.openrlhf_import import openrlhf_module
from comas.policy_optimization.preferences import dpo_loss

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
class Targets:
    """What the loss compares log-probs with: constants of an update, for a whole buffer or some of
    its rows."""

    mask: torch.Tensor
    """[N, T] bool: True = trained response token."""
    advantages: torch.Tensor | None
    """[N, T]; None where pairs are compared."""
    old_logprobs: torch.Tensor | None
    """[N, T]: log pi_old; None where those of the update's own forward pass are the old ones."""
    policy_logprobs: torch.Tensor | None
    """[N, T]: log pi_theta before the update; None where no pass of its own computed it."""
    reference_logprobs: torch.Tensor | None
    """[N, T]: log pi_ref; None without a reference model."""
    rollout_logprobs: torch.Tensor
    """[N, T]: those of the engine that sampled, 0 where padded."""

    def rows(self, indices: Sequence[int], width: int) -> "Targets":
        """The given samples, cut to the ``width`` of their longest response."""
        rows = list(indices)
        return Targets(**{k: None if v is None else v[rows, :width] for k, v in vars(self).items()})

    def advantages_by_sample(self) -> tuple[Sequence[float], ...]:
        """The advantages of each sample's response tokens; none where pairs are compared.

        Example: advantages ``[[1.5, 1.5], [-2.0, 0.0]]`` of responses of 2 tokens and 1 token give
        ``[1.5, 1.5]`` and ``[-2.0]``, as arrays.
        """
        if self.advantages is None:
            return ()
        rows = zip(self.advantages.cpu(), self.mask.cpu(), strict=True)
        return tuple(array("f", row[mask].tolist()) for row, mask in rows)


def policy_loss(
    logprobs: torch.Tensor, *, targets: Targets, totals: StepTotals, optimization: Optimization
) -> Surrogate:
    """A micro batch's share of the loss, and what was clipped and corrected in it.

    The clipped surrogate (eq. 11), plus the KL penalty where the estimator has it in the loss
    and not in the advantages; or the DPO loss of pairs, each a chosen and a rejected response.
    ``logprobs`` are [B, R], ``targets`` those of the same rows.
    """
    reference, mask, beta = targets.reference_logprobs, targets.mask, optimization.kl_coef
    if optimization.loss == "dpo":
        assert reference is not None
        loss = dpo_loss(logprobs, reference_logprobs=reference, mask=mask, beta=beta, totals=totals)
        zero = torch.zeros_like(loss)
        return Surrogate(loss, zero, zero, zero)
    surrogate = clipped_surrogate(
        logprobs, targets=targets, totals=totals, optimization=optimization
    )
    kl_loss = ADVANTAGE_ESTIMATORS[optimization.estimator].kl_loss
    if reference is None or kl_loss is None:
        return surrogate
    penalty = kl_penalty(
        logprobs,
        reference_logprobs=reference,
        mask=mask,
        estimator=kl_loss,
        aggregation=loss_aggregation(optimization),
        totals=totals,
    )
    return surrogate._replace(loss=surrogate.loss + beta * penalty)


def clipped_surrogate(
    logprobs: torch.Tensor, *, targets: Targets, totals: StepTotals, optimization: Optimization
) -> Surrogate:
    """A micro batch's share of the clipped surrogate as a loss.

    The loss of a token is equation 11, with rho = pi_theta / pi_old::

        -min(rho * A, clip(rho, 1 - eps, 1 + eps) * A)

    averaged as ``loss_aggregation`` says. ``clip_epsilon_high`` replaces the eps above 1 (DAPO's
    clip-higher, arXiv 2503.14476). With ``dual_clip`` c the loss of a token of negative advantage
    is at most -c * A (arXiv 1912.09729). ``rollout_correction`` weighs every token's loss by
    pi_old / pi_rollout.
    """
    assert targets.advantages is not None
    mask, high = targets.mask, optimization.clip_epsilon_high
    aggregation, correction = loss_aggregation(optimization), rollout_correction(optimization)
    level, mode, bounds = correction or ("off", "mask", (0.0, 0.0))
    surrogate = openrlhf_module("loss").PolicyLoss(
        clip_eps_low=optimization.clip_epsilon,
        clip_eps_high=optimization.clip_epsilon if high is None else high,
        dual_clip=optimization.dual_clip,
        token_level_loss=TOKEN_LEVEL[aggregation],
        is_correction_level=level,
        is_correction_mode=mode,
        is_correction_threshold=bounds,
    )
    loss, clipped_share, _, _, corrected_share = surrogate(
        logprobs,
        logprobs.detach() if targets.old_logprobs is None else targets.old_logprobs,
        targets.advantages,
        action_mask=mask.to(logprobs.dtype),
        rollout_log_probs=targets.rollout_logprobs,
        **_denominators(aggregation, totals),
    )
    num_tokens, zero = mask.sum(), torch.zeros_like(loss)
    num_correctable = zero
    if correction is not None:
        num_correctable = mask.any(dim=1).sum() if level == "seq" else num_tokens
    # The shares of an empty micro batch are 0 / 0, and without a correction there is none.
    return Surrogate(
        loss,
        num_clipped=torch.where(num_tokens > 0, clipped_share * num_tokens, zero).detach(),
        num_corrected=zero
        if correction is None
        else torch.where(num_tokens > 0, corrected_share * num_correctable, zero),
        num_correctable=num_correctable,
    )


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


def log_ratios(
    logprobs: torch.Tensor | None, reference_logprobs: torch.Tensor | None, mask: torch.Tensor
) -> torch.Tensor:
    """log(pi_theta / pi_ref) [N, T] of each response token; zeros without a reference."""
    if logprobs is None or reference_logprobs is None:
        return torch.zeros(mask.shape, device=mask.device)
    return approximate_kl(logprobs, reference_logprobs, estimator="k1") * mask


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


def loss_aggregation(optimization: Optimization) -> str:
    """The configured aggregation, or else the estimator's, or else the mean over all tokens."""
    estimator = ADVANTAGE_ESTIMATORS[optimization.estimator]
    return optimization.loss_aggregation or estimator.loss_aggregation or "token_mean"


def rollout_correction(optimization: Optimization) -> RolloutCorrection | None:
    """The configured correction with its bounds, its own or the configured ones."""
    correction = ROLLOUT_CORRECTIONS[optimization.rollout_correction]
    if correction is None or optimization.rollout_ratio_bounds is None:
        return correction
    low, high = optimization.rollout_ratio_bounds
    return correction._replace(bounds=(low, high))


def needs_pass_beforehand(optimization: Optimization, *, num_optimizer_steps: int) -> bool:
    """Whether the policy's log-probs before the update take a forward pass of their own.

    Advantages that hold the KL penalty need them, since every gradient needs the advantages. So
    do importance ratios, unless the old log-probs are the rollout engine's, or there is one
    optimiser step, whose own forward pass gives the same.
    """
    if optimization.loss == "dpo":
        return False
    kl_loss = ADVANTAGE_ESTIMATORS[optimization.estimator].kl_loss
    penalises_rewards = optimization.kl_coef > 0 and kl_loss is None
    recomputes = optimization.old_logprobs == "recomputed"
    return penalises_rewards or (recomputes and num_optimizer_steps > 1)
