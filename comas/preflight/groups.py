"""Whether an estimator that compares the samples of a group will find any to compare."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import torch

from comas.config.schema import Config, Dpo, Interaction
from comas.policy_optimization import ADVANTAGE_ESTIMATORS, AdvantageEstimator
from comas.policy_optimization.advantages import AdvantageInputs
from comas.policy_optimization.samples import collect_samples, group_keys
from comas.preflight.needs import Need
from comas.preflight.sizes import silent_discussions
from comas.types import ROLES, Discussion, RewardedDiscussion, Role

WARNED_SHARE = 0.2
"""Share of a role's samples alone in their group that is warned of."""
MIN_TURNS = 6144
"""Turns that are held to find out who speaks how often."""


def group_needs(config: Config) -> list[Need]:
    """Others in the groups of an estimator that needs them; nothing of any other estimator.

    What decides is the groups, and the schedule with its copies, agents and policies: silent
    discussions tell. A role of which every sample is alone learns nothing, which is a fault.
    """
    algorithm = config.algorithm
    if isinstance(algorithm, Dpo):
        return []
    estimator = ADVANTAGE_ESTIMATORS[algorithm.estimator]
    if not needs_others(estimator):
        return []
    group_by = estimator.group_by if algorithm.group_by is None else algorithm.group_by
    shares = lone_shares(
        _silent_steps(config),
        policy_of_agent=config.policy_of_agent,
        trained_policies=config.trained_policies,
        group_by=group_by,
    )
    return [_group_need(algorithm.estimator, config.interaction, group_by, shares)]


def needs_others(estimator: AdvantageEstimator) -> bool:
    """Whether a response that is alone in its group has no advantage, whatever its reward.

    Found by asking for the advantages of two such responses, one rewarded and one not.
    """
    alone = AdvantageInputs(
        rewards=torch.tensor([1.0, 0.0]),
        mask=torch.ones(2, 1, dtype=torch.bool),
        log_ratios=torch.zeros(2, 1),
        groups=["one", "other"],
        kl_coef=0.0,
    )
    return not estimator(alone).any()


def lone_shares(
    discussions: Sequence[Discussion],
    *,
    policy_of_agent: Sequence[int],
    trained_policies: Sequence[int],
    group_by: Sequence[str],
) -> dict[Role, float]:
    """The share of each role's samples that are alone in their group of their policy's buffer.

    Example: agents 0 and 1 with a policy each, one solution of agent 0 and two of agent 1, by
    question and role: agent 0's is alone, so ``{"solution": 1 / 3}``.
    """
    rewarded = [
        RewardedDiscussion(d, tuple(None if turn.is_given else 0.0 for turn in d.turns))
        for d in discussions
    ]
    buffers = collect_samples(rewarded, policy_of_agent=policy_of_agent, mask_truncated=False)
    num_samples, num_alone = Counter[Role](), Counter[Role]()
    for policy in trained_policies:
        groups = group_keys(buffers[policy], group_by)
        sizes = Counter(groups)
        num_samples.update(sample.role for sample in buffers[policy])
        num_alone.update(
            sample.role
            for sample, group in zip(buffers[policy], groups, strict=True)
            if sizes[group] == 1
        )
    return {role: num_alone[role] / num_samples[role] for role in ROLES if num_samples[role]}


def _group_need(
    estimator: str, interaction: Interaction, group_by: Sequence[str], shares: Mapping[Role, float]
) -> Need:
    hopeless = [f"{role}s" for role, share in shares.items() if share == 1]
    doubtful = [f"{share:.0%} of {role}s" for role, share in shares.items() if share > WARNED_SHARE]
    cause = (
        f"the estimator {estimator} compares what is alike in {', '.join(group_by)}, and "
        f"under interaction.schedule={interaction.schedule} with "
        f"interaction.prompt_reuse={interaction.prompt_reuse}"
    )
    fewer = "algorithm.group_by to fewer keys, such as [question_id, role], " * (len(group_by) > 2)
    remedy = (
        f"set interaction.prompt_reuse to {max(4, 2 * interaction.prompt_reuse)}, {fewer}or "
        "algorithm.name to reinforce_pp, which learns from a lone sample"
    )
    fault = doubt = None
    if hopeless:
        fault = (
            f"{cause} all {' and '.join(hopeless)} are alone, so that they "
            f"have no advantage and teach nothing; {remedy}"
        )
    elif doubtful:
        doubt = (
            f"{cause} about {' and '.join(doubtful)} are alone, and have no advantage "
            f"(agent_<i>/policy/no_advantage_share); {remedy}"
        )
    present = ", ".join(f"{role}s {share:.0%}" for role, share in shares.items())
    return Need("samples alone in their group", "few", present, fault, doubt)


def _silent_steps(config: Config) -> list[Discussion]:
    """So many steps as have ``MIN_TURNS``; where one has more, so many of its questions."""
    copies = silent_discussions(config, num_questions=1)
    wanted = math.ceil(MIN_TURNS / max(1, sum(len(copy.turns) for copy in copies)))
    batch = min(config.rollout.batch_size, wanted)
    return [
        discussion
        for step in range(math.ceil(wanted / batch))
        for discussion in silent_discussions(config, num_questions=batch, step=step)
    ]
