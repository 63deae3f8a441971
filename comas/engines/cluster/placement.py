"""Plans which engine runs on which GPU, before anything starts.

A policy's engines are in one Ray placement group on one node, because colocated engines exchange
weights by CUDA IPC. A bundle is a whole GPU, since Ray would pack bundles of parts of a GPU, and
two ranks of a policy, onto the first. Policies that share GPUs therefore share the group. A family
of LoRA policies, which share their engines, counts as one policy here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from comas.config.schema import Config
from comas.types import Device

CPU_SHARE = 0.01
"""Ray CPUs of an engine: bookkeeping only; the environment bounds an engine's threads."""
SHARED_GPU_SHARE = 0.45
"""Share of a GPU for each of the rollout engine and the policy rank that share it."""


class Node(NamedTuple):
    node_id: str
    address: str
    num_cpus: int
    num_gpus: int


class Slot(NamedTuple):
    """The place of one engine process in its policy's group."""

    bundles: range
    """One bundle, or several for a sharded engine."""
    num_gpus: float
    """Its share of the GPU of each bundle; 0 on a CPU."""


@dataclass(frozen=True)
class PolicyPlacement:
    """A policy's placement group, and the slots of its engines in it.

    Example, 2 colocated GPUs: bundles ``({"GPU": 1, ...}, {"GPU": 1, ...})``; rollout engine i and
    policy rank i each have 0.45 of the GPU of bundle i. With ``rollout.tensor_parallel=2``, there
    is one rollout engine, in both bundles.
    """

    bundles: tuple[dict[str, float], ...]
    rollout_slots: tuple[Slot, ...]
    policy_slots: tuple[Slot, ...]
    policies_per_group: int = 1
    """Policies that have the same slots in the same group."""

    @property
    def num_gpus(self) -> int:
        """GPUs of the group, all on one node."""
        return sum("GPU" in bundle for bundle in self.bundles)


def plan_policy(config: Config, *, device: Device) -> PolicyPlacement:
    """Place the engines of one policy (every policy has the same shape).

    cuda, colocated: rank i has GPU i, engine i has GPUs i*tp to (i+1)*tp - 1 (tp:
    ``rollout.tensor_parallel``). cuda, disaggregated: the ranks' GPUs, then the engines'. cpu: one
    bundle for all.
    """
    tp = config.rollout.tensor_parallel
    num_engines, num_ranks = config.rollout.engines_per_policy, config.policy.ranks_per_policy
    if device == "cpu":
        return PolicyPlacement(
            bundles=({"CPU": CPU_SHARE * (num_engines + num_ranks)},),
            rollout_slots=(Slot(range(1), 0.0),) * num_engines,
            policy_slots=(Slot(range(1), 0.0),) * num_ranks,
        )
    colocated = config.cluster.placement == "colocated"
    sharers = config.cluster.policies_per_gpu
    gpu_share = (SHARED_GPU_SHARE if colocated else 1.0) / sharers
    starts = [(0 if colocated else num_ranks) + i * tp for i in range(num_engines)]
    return PolicyPlacement(
        bundles=({"GPU": 1.0, "CPU": 2 * CPU_SHARE * sharers},) * config.gpus_per_policy,
        rollout_slots=tuple(Slot(range(start, start + tp), gpu_share) for start in starts),
        policy_slots=tuple(Slot(range(i, i + 1), gpu_share) for i in range(num_ranks)),
        policies_per_group=sharers,
    )


def family_in_words(family: Sequence[int]) -> str:
    """``(0,) -> "policy 0"``, ``(0, 2) -> "policies 0, 2"``"""
    return f"{'policy' if len(family) == 1 else 'policies'} {', '.join(map(str, family))}"


def check_gpus(placement: PolicyPlacement, *, num_policies: int, node_gpus: Sequence[int]) -> None:
    """Raise ValueError with the numbers when the policies do not fit on the nodes' GPUs."""
    needed = placement.num_gpus
    if needed == 0:
        return
    fitting = sum(gpus // needed for gpus in node_gpus) * placement.policies_per_group
    if fitting >= num_policies:
        return
    nodes = ", ".join(map(str, node_gpus)) or "none"
    raise ValueError(
        f"too few GPUs: {num_policies} policies need {needed} GPUs each on one node "
        f"({gpus_in_all(placement, num_policies)} in all, {placement.policies_per_group} policies "
        f"per GPU); GPUs of the nodes: {nodes}, room for {fitting} policies. Use fewer agents "
        f"(society.num_agents={max(fitting, 1)}), fewer GPUs per policy "
        "(policy.ranks_per_policy, rollout.engines_per_policy and rollout.tensor_parallel), "
        "or share policies (society.policy_of_agent)."
    )


def gpus_in_all(placement: PolicyPlacement, num_policies: int) -> int:
    """Return the GPUs of a society: 4 policies of 2 GPUs need 8, or 4 if 2 share each GPU."""
    return placement.num_gpus * math.ceil(num_policies / placement.policies_per_group)
