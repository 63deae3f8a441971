"""Losses per token, and their aggregation to a scalar.

Every sum over a micro batch is divided by the totals of the whole optimiser step over all ranks, so
the gradient depends neither on the micro batches nor on the number of ranks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from comas.config.plugins import Registry, check_call
from comas.config.schema import Algorithm, Dpo
from comas.policy_optimization.advantages import ADVANTAGE_ESTIMATORS
from comas.policy_optimization.batching import StepTotals
from comas.policy_optimization.openrlhf_import import openrlhf_module
from comas.policy_optimization.preferences import dpo_loss


class LossInputs(NamedTuple):
    """The inputs of a loss: a micro batch of B responses, padded on the right to R tokens."""

    logprobs: torch.Tensor
    """[B, R]: log pi_theta of each token, differentiable."""
    old_logprobs: torch.Tensor
    """[B, R]: log pi_old."""
    advantages: torch.Tensor
    """[B, R]"""
    mask: torch.Tensor
    """[B, R] bool: True = trained response token."""
    clip_epsilon: tuple[float, float]
    """The epsilons below and above 1."""


class TokenLosses(NamedTuple):
    """The loss of each token, and which tokens were clipped."""

    losses: torch.Tensor
    """[B, R]; ignored where the mask is False."""
    is_clipped: torch.Tensor | None = None
    """[B, R] bool; None if no token is clipped."""


Loss = Callable[[LossInputs], TokenLosses]


def clipped_surrogate(inputs: LossInputs) -> TokenLosses:
    """The loss of equation 11, with rho = pi_theta / pi_old::

    -min(rho * A, clip(rho, 1 - eps, 1 + eps) * A)
    """
    ratio = (inputs.logprobs - inputs.old_logprobs).clamp(-20.0, 20.0).exp()
    low, high = inputs.clip_epsilon
    gain = ratio * inputs.advantages
    clipped_gain = ratio.clamp(1 - low, 1 + high) * inputs.advantages
    return TokenLosses(-torch.min(gain, clipped_gain), clipped_gain < gain)


def _as_loss(found: Any) -> Loss | None:
    """Accept plug-ins that return the losses [B, R] alone."""
    if not callable(found):
        return None
    check_call(found, "inputs")

    def loss(inputs: LossInputs) -> TokenLosses:
        result = found(inputs)
        return result if isinstance(result, TokenLosses) else TokenLosses(result)

    return loss


LOSSES: Registry[Loss] = Registry(
    {"clipped_surrogate": clipped_surrogate},
    group="comas.losses",
    wanted="a function from LossInputs to the loss of each token, or to TokenLosses",
    adapt=_as_loss,
)
"""Losses over advantages, by the name that ``algorithm.loss`` gives them."""


class Surrogate(NamedTuple):
    """A micro batch's share of the policy loss, with counts, as scalars."""

    loss: torch.Tensor
    num_clipped: torch.Tensor
    """Tokens whose gain was clipped (eq. 11)."""
    num_corrected: torch.Tensor
    """Tokens beyond the bounds of the correction."""


@dataclass(frozen=True)
class Targets:
    """The targets of the loss, for a whole buffer or some of its rows."""

    mask: torch.Tensor
    """[N, T] bool: True = trained response token."""
    advantages: torch.Tensor | None
    """[N, T]; None for DPO."""
    old_logprobs: torch.Tensor | None
    """[N, T]: log pi_old; None if the update's own forward pass gives them."""
    policy_logprobs: torch.Tensor | None
    """[N, T]: log pi_theta before the update, if a separate pass computed it."""
    reference_logprobs: torch.Tensor | None
    """[N, T]: log pi_ref, if there is a reference model."""
    rollout_logprobs: torch.Tensor
    """[N, T]: log-probs of the rollout engine, 0 where padded."""

    def rows(self, indices: Sequence[int], width: int) -> "Targets":
        """Return the given rows, cut to ``width`` tokens."""
        rows = list(indices)
        return Targets(**{k: None if v is None else v[rows, :width] for k, v in vars(self).items()})


def policy_loss(
    logprobs: torch.Tensor, *, targets: Targets, totals: StepTotals, algorithm: Algorithm
) -> Surrogate:
    """Return a micro batch's share of the loss, from ``logprobs`` [B, R] and the same rows of
    ``targets``: over advantages, plus a KL penalty if the estimator has one in the loss; or the DPO
    loss of pairs of a chosen and a rejected response."""
    reference, mask = targets.reference_logprobs, targets.mask
    none = torch.zeros((), device=mask.device)
    if isinstance(algorithm, Dpo):
        assert reference is not None
        loss = dpo_loss(
            logprobs, reference_logprobs=reference, mask=mask, beta=algorithm.beta, totals=totals
        )
        return Surrogate(loss, none, none)
    assert targets.advantages is not None
    low, high = algorithm.clip_epsilon, algorithm.clip_epsilon_high
    old = logprobs.detach() if targets.old_logprobs is None else targets.old_logprobs
    epsilons = (low, low if high is None else high)
    found = LOSSES[algorithm.loss](LossInputs(logprobs, old, targets.advantages, mask, epsilons))
    losses, num_corrected = found.losses, none
    is_cut_off = logprobs.requires_grad and not getattr(losses, "requires_grad", False)
    if getattr(losses, "shape", None) != mask.shape or is_cut_off:
        raise ValueError(
            f"algorithm.loss={algorithm.loss}: let it return a tensor with one loss for each "
            f"token, {list(mask.shape)}, computed from the logprobs"
        )
    if (correction := algorithm.rollout_correction) not in ("none", "ratio"):
        from comas.policy_optimization.rollout_correction import correction_weights

        weights, is_beyond = correction_weights(correction, old - targets.rollout_logprobs, mask)
        losses, num_corrected = weights * losses, (is_beyond & mask).sum()
    loss = aggregate(losses, mask, aggregation=algorithm.loss_aggregation, totals=totals)
    kl_loss = ADVANTAGE_ESTIMATORS[algorithm.estimator].kl_loss
    if reference is not None and kl_loss is not None:
        kl = approximate_kl(logprobs, reference, estimator=kl_loss)
        penalty = aggregate(kl, mask, aggregation=algorithm.loss_aggregation, totals=totals)
        loss = loss + algorithm.kl_coef * penalty
    num_clipped = none if found.is_clipped is None else (found.is_clipped.bool() & mask).sum()
    return Surrogate(loss, num_clipped, num_corrected)


def idle_samples(indices: Sequence[int], *, targets: Targets, algorithm: Algorithm) -> list[int]:
    """Return the samples among ``indices`` that have no gradient: all of their advantages, and so
    their clipped surrogates, are 0, and there is no KL penalty."""
    advantages, reference = targets.advantages, targets.reference_logprobs
    if advantages is None or isinstance(algorithm, Dpo) or algorithm.loss != "clipped_surrogate":
        return []
    if reference is not None and ADVANTAGE_ESTIMATORS[algorithm.estimator].kl_loss is not None:
        return []
    return [i for i in indices if not advantages[i].any()]


def aggregate(
    losses: torch.Tensor, mask: torch.Tensor, *, aggregation: str, totals: StepTotals
) -> torch.Tensor:
    """Return a micro batch's share of the mean of ``losses`` [B, R] over the optimiser step."""
    longest = totals.num_samples * totals.max_response_tokens
    return openrlhf_module("loss").aggregate_loss(
        losses.masked_fill(~mask, 0.0),  # of a plug-in, possibly NaN where padded
        mask.to(losses.dtype),
        token_level_loss=aggregation != "sequence_mean",
        dp_size=totals.num_ranks,
        batch_num_tokens=longest if aggregation == "constant_length" else totals.num_tokens,
        global_batch_size=totals.num_samples,
    )


def log_ratios(
    logprobs: torch.Tensor | None, reference_logprobs: torch.Tensor | None, mask: torch.Tensor
) -> torch.Tensor:
    """Return log(pi_theta / pi_ref) [N, T] of response tokens; zeros without a reference."""
    if logprobs is None or reference_logprobs is None:
        return torch.zeros(mask.shape, device=mask.device)
    return approximate_kl(logprobs, reference_logprobs, estimator="k1") * mask


def approximate_kl(
    logprobs: torch.Tensor,
    reference_logprobs: torch.Tensor,
    *,
    estimator: Literal["k1", "k2", "k3"],
) -> torch.Tensor:
    """Estimate KL(pi_theta || pi_ref) per token, clamped to [-10, 10], with r = log(pi_theta /
    pi_ref): k1 = r, k2 = r^2 / 2, k3 = exp(-r) - 1 + r (Schulman; DeepSeekMath uses k3)."""
    return openrlhf_module("utils").compute_approx_kl(
        logprobs, reference_logprobs, kl_estimator=estimator
    )


def needs_pass_beforehand(algorithm: Algorithm, *, num_optimizer_steps: int) -> bool:
    """Return whether a separate forward pass has to compute log-probs before the update. A KL
    penalty in the advantages needs them. So do importance ratios, unless the rollout engine's
    log-probs are the old ones, or there is only one optimiser step, whose own pass computes the
    same."""
    if isinstance(algorithm, Dpo):
        return False
    penalises_rewards = ADVANTAGE_ESTIMATORS[algorithm.estimator].kl_loss is None
    recomputes = algorithm.rollout_correction != "ratio" and num_optimizer_steps > 1
    return recomputes or (penalises_rewards and algorithm.kl_coef > 0)
