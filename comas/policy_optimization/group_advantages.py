"""Advantage estimators that compare a response with others of its group.

A new estimator is a function and an entry of the table at the end.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import torch

from comas.policy_optimization.advantages import (
    ADVANTAGE_ESTIMATORS,
    AdvantageEstimator,
    AdvantageInputs,
    whiten,
)


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


BY_ROLE = ("question_id", "role")

ADVANTAGE_ESTIMATORS |= {
    "reinforce_pp_baseline": AdvantageEstimator(reinforce_pp_baseline, BY_ROLE, kl_loss="k2"),
    "grpo": AdvantageEstimator(grpo, BY_ROLE, kl_loss="k3"),
    "dr_grpo": AdvantageEstimator(
        dr_grpo, BY_ROLE, kl_loss="k3", loss_aggregation="constant_length"
    ),
    "rloo": AdvantageEstimator(rloo, BY_ROLE),
    "dr_mas": AdvantageEstimator(dr_mas, ("question_id", "role", "agent_index"), kl_loss="k3"),
    "at_grpo": AdvantageEstimator(
        at_grpo, ("question_id", "round_index", "role", "agent_index"), kl_loss="k3"
    ),
    "rae": AdvantageEstimator(rae, ("role", "agent_index"), kl_loss="k3"),
}
