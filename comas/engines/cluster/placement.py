"""Which engine runs on which GPU: pure planning, before anything starts.

A policy's engines are in one Ray placement group whose bundles lie on one node, because
colocated engines exchange weights by CUDA IPC; with ``cluster.nodes_per_policy`` in as many groups,
each with an equal part of its ranks and engines. A bundle is a whole GPU: of bundles that hold a
part of one, Ray puts as many as fit on the first, and two ranks of a policy would meet there.
Policies that share GPUs therefore share the groups. Here, a family of LoRA policies, which share
their engines, counts as one policy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from comas.config.schema import Config
from comas.types import Device

CPU_SHARE = 0.01
"""Ray's CPU count is bookkeeping; the engines' threads are bounded by their environment."""
SHARED_GPU_SHARE = 0.45
"""Share of a GPU for each of the rollout engine and the policy rank that share it."""

NODE_LABEL = "ray.io/node-id"
"""Ray's own label of every node."""
Labels = dict[str, str]


class Node(NamedTuple):
    """A machine that belongs to the Ray that the engines run under."""

    node_id: str
    address: str
    num_cpus: int
    num_gpus: int


@dataclass(frozen=True)
class Slot:
    """A GPU's share for one engine process, in a bundle of a group of its policy (0 on CPU).

    A sharded engine has that share of the GPU of each of ``num_bundles`` bundles in a row.
    """

    bundle_index: int
    num_gpus: float
    num_bundles: int = 1
    part: int = 0
    """Which of the policy's groups: the number of its node, among those of the policy."""

    @property
    def bundles(self) -> range:
        """The indices of its bundles: ``Slot(2, 0.45, num_bundles=2).bundles == range(2, 4)``"""
        return range(self.bundle_index, self.bundle_index + self.num_bundles)


@dataclass(frozen=True)
class PolicyPlacement:
    """A policy's placement groups, all alike, and the slots of its engines in them.

    Example, 2 colocated GPUs: bundles ``({"GPU": 1, ...}, {"GPU": 1, ...})``, rollout engine
    i and policy rank i both in bundle i with 0.45 of its GPU. With ``rollout.tensor_parallel=2``
    instead, one rollout engine in both bundles. With ``cluster.nodes_per_policy=2``, one bundle a
    group, rollout engine i and policy rank i in that of group i.
    """

    bundles: tuple[dict[str, float], ...]
    """Those of one group."""
    rollout_slots: tuple[Slot, ...]
    policy_slots: tuple[Slot, ...]
    policies_per_group: int = 1
    """Policies with the same slots in the same groups."""
    num_parts: int = 1
    """Groups of a policy."""

    @property
    def gpus_of_a_group(self) -> int:
        """GPUs that have to be on one node."""
        return sum("GPU" in bundle for bundle in self.bundles)

    @property
    def num_gpus(self) -> int:
        """GPUs that the policy uses, alone or with others."""
        return self.num_parts * self.gpus_of_a_group

    @property
    def ranks_of_a_group(self) -> int:
        """The policy's ranks that are on one node."""
        return len(self.policy_slots) // self.num_parts

    def num_groups(self, num_policies: int) -> int:
        """Placement groups that so many policies need."""
        return self.num_parts * -(-num_policies // self.policies_per_group)

    def group_of(self, policy: int, part: int) -> int:
        """The number of a policy's group. Example: with 2 parts and 2 policies in a group, part 1
        of policy 3 is in group 3."""
        return policy // self.policies_per_group * self.num_parts + part

    def policies_fitting(self, node_gpus: Iterable[int]) -> int:
        """Policies for which nodes with so many GPUs have room.

        Example: of 2 GPUs each, nodes of 3 and 4 GPUs hold three, although 7 GPUs are there.
        """
        num_groups = sum(gpus // self.gpus_of_a_group for gpus in node_gpus)
        return num_groups // self.num_parts * self.policies_per_group


def plan_policy(config: Config, *, device: Device) -> PolicyPlacement:
    """Place the engines of one policy (every policy has the same shape).

    On each of its nodes: cuda, colocated: rank i has GPU i, and engine i the GPUs i*tp to
    (i+1)*tp - 1, where tp is ``rollout.tensor_parallel``. cuda, disaggregated: the ranks' GPUs
    first, then the engines'. cpu: one bundle for all.
    """
    num_parts, tp = config.cluster.nodes_per_policy, config.rollout.tensor_parallel
    num_engines = config.rollout.engines_per_policy // num_parts
    num_ranks = config.policy.ranks_per_policy // num_parts
    if device == "cpu":
        share = CPU_SHARE * (num_engines + num_ranks)
        return PolicyPlacement(
            bundles=({"CPU": share},),
            rollout_slots=_in_parts(num_parts, [Slot(0, 0.0)] * num_engines),
            policy_slots=_in_parts(num_parts, [Slot(0, 0.0)] * num_ranks),
            num_parts=num_parts,
        )
    colocated = config.cluster.placement == "colocated"
    sharers = config.cluster.policies_per_gpu
    gpu_share = (SHARED_GPU_SHARE if colocated else 1.0) / sharers
    first_engine = 0 if colocated else num_ranks
    engines = [Slot(first_engine + i * tp, gpu_share, num_bundles=tp) for i in range(num_engines)]
    bundle = {"GPU": 1.0, "CPU": 2 * CPU_SHARE * sharers}
    return PolicyPlacement(
        bundles=(bundle,) * (config.gpus_per_policy // num_parts),
        rollout_slots=_in_parts(num_parts, engines),
        policy_slots=_in_parts(num_parts, [Slot(i, gpu_share) for i in range(num_ranks)]),
        policies_per_group=sharers,
        num_parts=num_parts,
    )


def _in_parts(num_parts: int, slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """The same ``slots`` in every part, part after part."""
    return tuple(replace(slot, part=part) for part in range(num_parts) for slot in slots)


def family_in_words(family: Sequence[int]) -> str:
    """``(0,) -> "policy 0"``, ``(0, 2) -> "policies 0, 2"``"""
    return f"{'policy' if len(family) == 1 else 'policies'} {', '.join(map(str, family))}"


def label_selectors(num_groups: int, *, holders: Sequence[str], device: Device) -> list[Labels]:
    """Labels of the node that each placement group has to be on.

    Groups that need GPUs are wherever Ray finds enough of them. Those on CPUs, of which Ray is
    asked next to nothing, take turns on ``holders``, Ray's ids of the nodes that have any.

    Example: 3 groups on the CPUs of the nodes a and b are on a, b and a.
    """
    if device == "cuda":
        return [{}] * num_groups
    return [{NODE_LABEL: holders[group % len(holders)]} for group in range(num_groups)]


def num_host_threads(
    placement: PolicyPlacement, *, num_policies: int, nodes: Sequence[Node]
) -> int:
    """Threads for each policy rank's work on the host, such as that of an offloaded optimiser.

    All ranks of a node update at once: each has its part of the node's cores. Of nodes that
    differ the smallest part counts, at least 1.

    Example: 4 policies of 2 colocated GPUs on a node of 8 GPUs and 128 cores: 8 ranks of 16.
    """
    shares = []
    for node in nodes:
        room = node.num_gpus // max(placement.gpus_of_a_group, 1) * placement.policies_per_group
        num_ranks = min(num_policies * placement.num_parts, room) * placement.ranks_of_a_group
        if num_ranks:
            shares.append(node.num_cpus // num_ranks)
    return max(1, min(shares, default=1))


def check_gpus(placement: PolicyPlacement, *, num_policies: int, node_gpus: Sequence[int]) -> None:
    """Raise ValueError with the numbers when the policies do not fit on the nodes' GPUs."""
    needed = placement.num_gpus
    if needed == 0:
        return
    fitting = placement.policies_fitting(node_gpus)
    if fitting >= num_policies:
        return
    nodes = ", ".join(map(str, node_gpus)) or "none"
    where = "on one node"
    if placement.num_parts > 1:
        where = f"in {placement.num_parts} parts of {placement.gpus_of_a_group} on one node"
    raise ValueError(
        f"too few GPUs: {num_policies} policies need {needed} GPUs each {where} "
        f"({gpus_in_all(placement, num_policies)} in all, {placement.policies_per_group} policies "
        f"per GPU); GPUs of the nodes: {nodes}, room for {fitting} policies. Use fewer agents "
        f"(society.num_agents={max(fitting, 1)}), fewer GPUs per policy "
        "(policy.ranks_per_policy, rollout.engines_per_policy and rollout.tensor_parallel), "
        "or share policies (society.policy_of_agent)."
    )


def gpus_in_all(placement: PolicyPlacement, num_policies: int) -> int:
    """GPUs that a society needs: 4 policies of 2 GPUs need 8, or 4 when 2 share each GPU."""
    return placement.gpus_of_a_group * placement.num_groups(num_policies)
