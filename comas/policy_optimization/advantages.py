"""Advantages: how much better or worse than the mean each response token of a buffer was.

REINFORCE++, the paper's estimator, is here; the others are in ``group_advantages.py``.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch

from comas.config.plugins import Registry, check_call
from comas.config.schema import Optimization
from comas.policy_optimization.samples import group_keys
from comas.types import TrainingSample


@dataclass(frozen=True)
class AdvantageInputs:
    """One policy's whole buffer of N responses, padded on the right to T tokens.

    Example: two responses of 2 and 1 tokens, the first rewarded, without a reference model::

        AdvantageInputs(
            rewards=tensor([1.0, 0.0]),
            mask=tensor([[True, True], [True, False]]),
            log_ratios=tensor([[0.0, 0.0], [0.0, 0.0]]),
            groups=[("math/17", "solution"), ("math/17", "solution")],
            discount=1.0,
            kl_coef=0.0,
        )
    """

    rewards: torch.Tensor
    """[N]: r(o), one per response."""
    mask: torch.Tensor
    """[N, T] bool, True = response token; True up to the response's length, then False."""
    log_ratios: torch.Tensor
    """[N, T]: log(pi_theta / pi_ref) of each token; zeros without a reference model."""
    groups: Sequence[Hashable]
    """[N]: key of the group that each response belongs to."""
    discount: float
    """gamma of the token returns."""
    kl_coef: float
    """beta of the KL penalty."""
    memory: dict[Hashable, float] = field(default_factory=dict)
    """What an estimator has kept from earlier updates; it may change it. It starts empty, and is
    part of the policy's checkpoint."""

    def on_every_token(self, advantages: torch.Tensor) -> torch.Tensor:
        """One advantage for each response [N], on all of its tokens: [N, T] float32.

        Example: advantages [2, 3] of responses of 2 and 1 tokens: [[2, 2], [3, 0]].
        """
        return (advantages[:, None] * self.mask).float()


VARIANCE_FLOOR = 1e-8


def reinforce_pp(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T] of equations 9 and 10 (zeros where the mask is False).

    The token reward is -beta * log(pi_theta / pi_ref)_t, plus r(o) on the last token; with
    gamma = 1 its reverse cumulative sum is equation 9::

        A_t = r(o) - beta * sum_{u >= t} log(pi_theta / pi_ref)_u

    which is then whitened over all response tokens of the buffer (equation 10)::

        (A - mean) / sqrt(max(variance, 1e-8))

    with the population variance. The floor keeps a buffer of equal returns at zero. Groups
    are not read. Source: arXiv 2501.03262; parity with OpenRLHF's "reinforce" is tested.
    """
    return whiten(token_returns(inputs), inputs.mask)


def token_returns(inputs: AdvantageInputs) -> torch.Tensor:
    """Returns A_t [N, T] of equation 9, in float64.

    Example: reward 1, beta 0.1, log-ratios [2, 1] over two tokens, gamma 1: the token rewards
    [-0.2, 0.9] give the returns [0.7, 0.9].
    """
    token_rewards = -inputs.kl_coef * inputs.log_ratios.double() * inputs.mask
    last_token = inputs.mask.sum(dim=1, keepdim=True) - 1
    token_rewards = token_rewards.scatter_add(1, last_token, inputs.rewards.double()[:, None])
    returns = torch.zeros_like(token_rewards)
    running = torch.zeros_like(token_rewards[:, 0])
    for t in range(token_rewards.shape[1] - 1, -1, -1):
        running = token_rewards[:, t] + inputs.discount * running
        returns[:, t] = running
    return returns


def whiten(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(values - mean) / standard deviation over the True entries of ``mask``; float32.

    Computed in float64: in float32 the rounding of the mean of equal values, divided by the
    floored deviation 1e-4, would no longer be zero.
    """
    values = values.double()
    num_tokens = mask.sum().clamp(min=1)
    mean = (values * mask).sum() / num_tokens
    centered = (values - mean) * mask
    variance = centered.square().sum() / num_tokens
    return (centered * variance.clamp(min=VARIANCE_FLOOR).rsqrt()).float()


class AdvantageEstimator(NamedTuple):
    """How advantages are computed, and what belongs to them in the loss."""

    advantages: Callable[[AdvantageInputs], torch.Tensor]
    """The whole buffer to advantages [N, T]."""
    group_by: tuple[str, ...] = ()
    """Fields of a sample that make its group, unless ``optimization.group_by`` names others;
    none: samples are not compared by groups."""
    kl_loss: Literal["k2", "k3"] | None = None
    """Estimator of a KL term in the loss; None: the penalty is part of the advantages."""
    loss_aggregation: str | None = None
    """The only way in which its loss may be aggregated; None: as configured."""
    reads_discount: bool = False
    """Whether ``optimization.discount`` enters; otherwise it has to be 1."""

    def __call__(self, inputs: AdvantageInputs) -> torch.Tensor:
        """Its advantages [N, T]. Raises ValueError where it returns something else."""
        found: object = self.advantages(inputs)
        if not isinstance(found, torch.Tensor) or found.shape != inputs.mask.shape:
            shape = f" {list(found.shape)}" if isinstance(found, torch.Tensor) else ""
            raise ValueError(
                f"optimization.estimator: of {list(inputs.mask.shape)} tokens it "
                f"returned {type(found).__name__}{shape}; let it return an advantage for each, a "
                "tensor [N, T]"
            )
        return found


def _as_estimator(found: Any) -> AdvantageEstimator | None:
    """A bare function compares no samples by groups."""
    if isinstance(found, AdvantageEstimator):
        check_call(found.advantages, "inputs")
        return found
    return _as_estimator(AdvantageEstimator(found)) if callable(found) else None


ADVANTAGE_ESTIMATORS: Registry[AdvantageEstimator] = Registry(
    {"reinforce_pp": AdvantageEstimator(reinforce_pp, reads_discount=True)},
    group="comas.estimators",
    wanted="a function from AdvantageInputs to advantages, or an AdvantageEstimator",
    adapt=_as_estimator,
)
"""Advantage estimators, by the name that ``optimization.estimator`` gives them; whoever imports the
package finds those of ``group_advantages.py`` here as well."""


def compute_advantages(
    samples: Sequence[TrainingSample],
    *,
    mask: torch.Tensor,
    log_ratios: torch.Tensor,
    optimization: Optimization,
    memory: dict[Hashable, float],
) -> torch.Tensor:
    """Advantages [N, T] of one policy's whole buffer (never of a shard of it).

    What the estimator makes is multiplied with ``optimization.role_weights``. ``log_ratios`` [N, T]
    are those to the reference model. ``memory`` is what the estimator has kept from the policy's
    earlier updates, and is changed by those that keep something.
    """
    estimator = ADVANTAGE_ESTIMATORS[optimization.estimator]
    rewards = torch.tensor([sample.reward for sample in samples], dtype=torch.float32)
    inputs = AdvantageInputs(
        rewards=rewards.to(mask.device),
        mask=mask,
        log_ratios=log_ratios,
        groups=group_keys(
            samples, estimator.group_by if optimization.group_by is None else optimization.group_by
        ),
        discount=optimization.discount,
        kl_coef=optimization.kl_coef,
        memory=memory,
    )
    advantages = estimator(inputs)
    weights = optimization.role_weights
    if not weights:
        return advantages
    of_samples = torch.tensor([float(weights.get(sample.role, 1.0)) for sample in samples])
    return advantages * of_samples.to(advantages).unsqueeze(1)
