"""Advantages: how much better or worse than the mean each response token of a buffer was.

A new estimator is a function here and an entry of ``ADVANTAGE_ESTIMATORS``.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import torch

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


def reinforce_pp_baseline(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T], the same on every token of a response (zeros where masked).

    The mean of a response's group is taken off its reward, and the differences are whitened
    over all response tokens of the buffer, as in ``reinforce_pp``. The KL penalty is a term of
    the loss (k2) and not part of the returns, so there is nothing to discount either.
    Source: arXiv 2501.03262; parity with OpenRLHF's "reinforce_baseline" is tested.
    """
    advantages = within_groups(inputs.rewards, inputs.groups, centered)
    return whiten(advantages[:, None].expand(inputs.mask.shape), inputs.mask)


def grpo(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T], the same on every token of a response (zeros where masked)::

        A = (r - mean(group)) / (std(group) + 1e-9)

    with the sample standard deviation (divisor n - 1), as OpenRLHF's "group_norm" and TRL
    have it; the paper does not say which. Groups may have any sizes; a response alone in its
    group has advantage 0. Discount and KL are not read: GRPO's KL is a term of the loss.
    Source: DeepSeekMath, arXiv 2402.03300.
    """
    relate = partial(standardized, epsilon=1e-9)
    return inputs.on_every_token(within_groups(inputs.rewards, inputs.groups, relate))


def dr_grpo(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T], the same on every token of a response (zeros where masked)::

        A = r - mean(group)

    Dividing by the standard deviation would favour questions that are too easy or too hard,
    and dividing the loss by each response's own length would favour long wrong answers; its
    loss is therefore aggregated as "constant_length". A response alone in its group has
    advantage 0. KL is a term of the loss (k3), as in GRPO. Source: arXiv 2503.20783.
    """
    return inputs.on_every_token(within_groups(inputs.rewards, inputs.groups, centered))


def dr_mas(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T], the same on every token of a response (zeros where masked)::

        A = (r - mean(group)) / (std(group) + 1e-6)

    A group is all that one agent said about a question in one role, in any round and copy of the
    discussion: one mean for all would give those with other rewards large gradients. An agent of
    the paper has one role (search, answer, verify), here it has all of them, whose rewards differ
    as theirs do. A response alone in its group keeps mean 0 and standard deviation 1, so its
    advantage is its reward. KL is a term of the loss (k3). Source: arXiv 2602.08847.
    """
    epsilon = 1e-6

    def relate(rewards: torch.Tensor) -> torch.Tensor:
        return (
            standardized(rewards, epsilon=epsilon) if len(rewards) > 1 else rewards / (1 + epsilon)
        )

    return inputs.on_every_token(within_groups(inputs.rewards, inputs.groups, relate))


def at_grpo(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T] of GRPO, in groups of like prompts: one question, turn and agent.

    Responses to different prompts are no comparison for each other, and in a discussion the
    prompts differ by turn and agent. A turn is a round and a role here. The paper samples a tree:
    K responses to each prompt, of which one goes on. Here the copies of a discussion take
    their place, which have histories of their own after the first round; such prompts count as
    alike. With ``interaction.prompt_reuse=1`` every solution would be alone, which the preflight
    refuses. Source: Stronger-MAS, arXiv 2510.11062.
    """
    return grpo(inputs)


def rloo(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T], the same on every token of a response (zeros where masked)::

        R = r - beta * sum over its tokens of log(pi_theta / pi_ref)
        A = R - mean of R over the n - 1 others of the group

    A response alone in its group has nothing to be compared with, and advantage 0.
    Source: arXiv 2402.14740.
    """
    penalties = (inputs.log_ratios.double() * inputs.mask).sum(dim=1)
    returns = inputs.rewards.double() - inputs.kl_coef * penalties
    # (sum - R) / (n - 1) is the mean of the others: the difference is n / (n - 1) (R - mean).
    return inputs.on_every_token(
        within_groups(
            returns,
            inputs.groups,
            lambda group: centered(group) * (len(group) / max(len(group) - 1, 1)),
        )
    )


def rae(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T], the same on every token of a response (zeros where masked).

    Each group (an agent in a role) has a baseline b that begins at 0 and moves with every
    response, in the order of the buffer, after the response was compared with it::

        A = r - b        b <- 0.95 b + 0.05 r

    The baselines are ``inputs.memory``, which lasts from update to update. They approach a
    constant reward, so its advantage fades but is not 0 at first. KL is a term of the loss
    (k3). Source: role-conditioned advantage estimation of SPIRAL, arXiv 2506.24119.

    Example: the rewards 1, 1 of one group: advantages 1 and 0.95; b is then 0.0975.
    """
    decay = 0.95
    baselines = inputs.memory
    advantages = []
    for group, reward in zip(inputs.groups, inputs.rewards.tolist(), strict=True):
        baseline = baselines.get(group, 0.0)
        advantages.append(reward - baseline)
        baselines[group] = decay * baseline + (1 - decay) * reward
    return inputs.on_every_token(torch.tensor(advantages, device=inputs.mask.device))


def within_groups(
    values: torch.Tensor, groups: Sequence[Hashable], relate: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """``relate`` of each group's values, in the places that they came from: [N], float64.

    Groups may have any sizes and lie in any order.

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
    """value - mean; exactly 0 where all are equal, whatever their mean is rounded to."""
    if torch.all(values == values[0]):
        return torch.zeros_like(values)
    return values - values.mean()


def standardized(values: torch.Tensor, *, epsilon: float) -> torch.Tensor:
    """(value - mean) / (std + epsilon), with the sample standard deviation (divisor n - 1);
    exactly 0 where all are equal, and so for a lone value."""
    if torch.all(values == values[0]):
        return torch.zeros_like(values)
    return centered(values) / (values.std(unbiased=True) + epsilon)


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

    @property
    def needs_others(self) -> bool:
        """Whether a response that is alone in its group has no advantage, whatever its reward.

        Found by asking for the advantages of two such responses, one rewarded and one not.
        """
        of_alone = AdvantageInputs(
            rewards=torch.tensor([1.0, 0.0]),
            mask=torch.ones(2, 1, dtype=torch.bool),
            log_ratios=torch.zeros(2, 1),
            groups=["one", "other"],
            discount=1.0,
            kl_coef=0.0,
        )
        return not self.advantages(of_alone).any()


_BY_ROLE = ("question_id", "role")

ADVANTAGE_ESTIMATORS: dict[str, AdvantageEstimator] = {
    "reinforce_pp": AdvantageEstimator(reinforce_pp, reads_discount=True),
    "reinforce_pp_baseline": AdvantageEstimator(reinforce_pp_baseline, _BY_ROLE, kl_loss="k2"),
    "grpo": AdvantageEstimator(grpo, _BY_ROLE, kl_loss="k3"),
    "dr_grpo": AdvantageEstimator(
        dr_grpo, _BY_ROLE, kl_loss="k3", loss_aggregation="constant_length"
    ),
    "rloo": AdvantageEstimator(rloo, _BY_ROLE),
    "dr_mas": AdvantageEstimator(dr_mas, ("question_id", "role", "agent_index"), kl_loss="k3"),
    "at_grpo": AdvantageEstimator(
        at_grpo, ("question_id", "round_index", "role", "agent_index"), kl_loss="k3"
    ),
    "rae": AdvantageEstimator(rae, ("role", "agent_index"), kl_loss="k3"),
}
"""Advantage estimators, by the name that ``optimization.estimator`` gives them."""


def compute_advantages(
    samples: Sequence[TrainingSample],
    *,
    mask: torch.Tensor,
    log_ratios: torch.Tensor,
    optimization: Optimization,
    memory: dict[Hashable, float],
) -> torch.Tensor:
    """Advantages [N, T] of one policy's whole buffer (never of a shard of it).

    ``log_ratios`` [N, T] are those to the reference model. ``memory`` is what the estimator has
    kept from the policy's earlier updates, and is changed by those that keep something.
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
    return estimator.advantages(inputs)
