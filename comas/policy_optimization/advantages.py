"""Advantages: how much better or worse than the mean each response token of a buffer was."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch

from comas.config.plugins import Registry, check_call
from comas.config.schema import Custom, Grpo, ReinforcePP
from comas.config.schema.algorithm import GROUP_KEYS
from comas.types import TrainingSample


@dataclass(frozen=True)
class AdvantageInputs:
    """One policy's whole buffer of N responses, padded on the right to T tokens."""

    rewards: torch.Tensor
    """[N]: r(o), one per response."""
    mask: torch.Tensor
    """[N, T] bool, True = response token; False where padded."""
    log_ratios: torch.Tensor
    """[N, T]: log(pi_theta / pi_ref) of each token; zeros without pi_ref, or with a ``kl_loss``."""
    groups: Sequence[Hashable]
    """[N]: key of each response's group, such as ``("math/17", "solution")``."""
    kl_coef: float
    """beta of the KL penalty."""
    memory: dict[Hashable, float] = field(default_factory=dict)
    """The estimator's own state between updates, which it may change. It starts empty, and is saved
    in the policy's checkpoint."""

    def on_every_token(self, advantages: torch.Tensor) -> torch.Tensor:
        """Spread one advantage per response [N] over its tokens: [N, T] float32.

        Example: advantages [2, 3] of responses of 2 and 1 tokens: [[2, 2], [3, 0]].
        """
        return (advantages[:, None] * self.mask).float()


def reinforce_pp(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T] of equations 9 and 10 (zeros where the mask is False)::

        A_t = r(o) - beta * sum_{u >= t} log(pi_theta / pi_ref)_u

    whitened over all response tokens of the buffer. Source: arXiv 2501.03262.
    """
    return whiten(token_returns(inputs), inputs.mask)


def grpo(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T], the same on every token of a response (zeros where masked)::

        A = (r - mean(group)) / (std(group) + 1e-9)

    with the sample standard deviation (divisor n - 1), as in OpenRLHF and TRL; the paper does not
    say which. A response alone in its group has advantage 0. The KL penalty is a term of the loss.
    Source: DeepSeekMath, arXiv 2402.03300.
    """
    return inputs.on_every_token(within_groups(inputs.rewards, inputs.groups, standardized))


def token_returns(inputs: AdvantageInputs) -> torch.Tensor:
    """Returns A_t [N, T] of equation 9, in float64.

    Example: reward 1, beta 0.1, log-ratios [2, 1] over two tokens: the token rewards [-0.2, 0.9]
    give the returns [0.7, 0.9].
    """
    token_rewards = -inputs.kl_coef * inputs.log_ratios.double() * inputs.mask
    last_token = inputs.mask.sum(dim=1, keepdim=True) - 1
    token_rewards = token_rewards.scatter_add(1, last_token, inputs.rewards.double()[:, None])
    return token_rewards.flip(1).cumsum(1).flip(1)


def whiten(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(values - mean) / sqrt(max(variance, 1e-8)) over the True entries of ``mask``, with the
    population variance; float32, but computed in float64, so that equal values become zeros."""
    values = values.double()
    num_tokens = mask.sum().clamp(min=1)
    mean = (values * mask).sum() / num_tokens
    centered = (values - mean) * mask
    variance = centered.square().sum() / num_tokens
    return (centered * variance.clamp(min=1e-8).rsqrt()).float()


def within_groups(
    values: torch.Tensor, groups: Sequence[Hashable], relate: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Apply ``relate`` to the values of each group, keeping their order: [N], float64.

    Example: values [3, 1, 5] of the groups a, b, a, related by ``centered``: [-1, 0, 1].
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    values = values.double()
    related = torch.zeros_like(values)
    for indices in members.values():
        related[indices] = relate(values[indices])
    return related


def centered(values: torch.Tensor) -> torch.Tensor:
    """value - mean; exactly 0 if all values are equal, however their mean is rounded."""
    if torch.all(values == values[0]):
        return torch.zeros_like(values)
    return values - values.mean()


def standardized(values: torch.Tensor) -> torch.Tensor:
    """(value - mean) / (std + 1e-9), with the sample standard deviation (divisor n - 1); exactly
    0 if all values are equal, or there is only one."""
    if torch.all(values == values[0]):
        return torch.zeros_like(values)
    return centered(values) / (values.std(unbiased=True) + 1e-9)


class AdvantageEstimator(NamedTuple):
    """A function that computes advantages, with its groups and, if it has one, its KL loss."""

    advantages: Callable[[AdvantageInputs], torch.Tensor]
    """Function from a whole buffer to advantages [N, T]."""
    group_by: tuple[str, ...] = ()
    """Fields of a sample that define its group; ``algorithm.group_by`` overrides them."""
    kl_loss: Literal["k2", "k3"] | None = None
    """Estimator of a KL term in the loss; None if the penalty is part of the advantages."""


def _as_estimator(found: Any) -> AdvantageEstimator | None:
    """Make an estimator without groups of a bare function."""
    if isinstance(found, AdvantageEstimator):
        if isinstance(found.group_by, str) or not set(found.group_by) <= set(GROUP_KEYS):
            raise TypeError(
                f"group_by is {found.group_by!r}, not a tuple of {', '.join(GROUP_KEYS)}"
            )
        check_call(found.advantages, "inputs")
        return found
    return _as_estimator(AdvantageEstimator(found)) if callable(found) else None


ADVANTAGE_ESTIMATORS: Registry[AdvantageEstimator] = Registry(
    {
        "reinforce_pp": AdvantageEstimator(reinforce_pp),
        "grpo": AdvantageEstimator(grpo, ("question_id", "role"), kl_loss="k3"),
    },
    group="comas.estimators",
    wanted="a function from AdvantageInputs to advantages, or an AdvantageEstimator",
    adapt=_as_estimator,
)
"""Advantage estimators, by the name that ``algorithm.estimator`` gives them."""


def compute_advantages(
    samples: Sequence[TrainingSample],
    *,
    mask: torch.Tensor,
    log_ratios: torch.Tensor,
    algorithm: ReinforcePP | Grpo | Custom,
    memory: dict[Hashable, float],
) -> torch.Tensor:
    """Return the advantages [N, T] of one policy's whole buffer, times ``algorithm.role_weights``.
    Arguments are as in ``AdvantageInputs``."""
    estimator = ADVANTAGE_ESTIMATORS[algorithm.estimator]
    group_by = estimator.group_by if algorithm.group_by is None else algorithm.group_by
    rewards = torch.tensor([sample.reward for sample in samples], dtype=torch.float32)
    inputs = AdvantageInputs(
        rewards=rewards.to(mask.device),
        mask=mask,
        log_ratios=log_ratios * (estimator.kl_loss is None),  # else it would be penalised twice
        groups=[tuple(getattr(sample, key) for key in group_by) for sample in samples],
        kl_coef=algorithm.kl_coef,
        memory=memory,
    )
    advantages = estimator.advantages(inputs)
    if not isinstance(advantages, torch.Tensor) or advantages.shape != mask.shape:
        raise ValueError(
            f"algorithm.estimator={algorithm.estimator}: let it return a tensor with one advantage "
            f"for each token, {list(mask.shape)}"
        )
    weights = algorithm.role_weights
    if not weights:
        return advantages
    sample_weights = [[weights.get(sample.role, 1.0)] for sample in samples]
    return advantages * torch.tensor(sample_weights).to(advantages.device)
