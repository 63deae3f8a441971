"""Which engine runs on which GPU: pure planning, before anything starts.

A policy's engines are in one Ray placement group whose bundles lie on one node, because
colocated engines exchange weights by CUDA IPC. A bundle is a whole GPU: of bundles that hold a part
of one, Ray puts as many as fit on the first, and two ranks of a policy would meet there. Policies
that share GPUs therefore share the group. Here, a family of LoRA policies, which share their
engines, counts as one policy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from comas.config.schema import Config
from comas.types import Device

CPU_SHARE = 0.01
"""Ray's CPU count is bookkeeping; the engines' threads are bounded by their environment."""
SHARED_GPU_SHARE = 0.45
"""Share of a GPU for each of the rollout engine and the policy rank that share it."""

NODE_LABEL = "ray.io/node-id"
"""Ray's own label of every node."""


class Node(NamedTuple):
    """A machine that belongs to the Ray that the engines run under."""

    node_id: str
    address: str
    num_cpus: int
    num_gpus: int


@dataclass(frozen=True)
class Slot:
    """A GPU's share for one engine process, in a bundle of its policy's group (0 on CPU).

    A sharded engine has that share of the GPU of each of ``num_bundles`` bundles in a row.
    """

    bundle_index: int
    num_gpus: float
    num_bundles: int = 1

    @property
    def bundles(self) -> range:
        """The indices of its bundles: ``Slot(2, 0.45, num_bundles=2).bundles == range(2, 4)``"""
        return range(self.bundle_index, self.bundle_index + self.num_bundles)


@dataclass(frozen=True)
class PolicyPlacement:
    """A policy's placement group, and the slots of its engines in it.

    Example, 2 colocated GPUs: bundles ``({"GPU": 1, ...}, {"GPU": 1, ...})``, rollout engine
    i and policy rank i both in bundle i with 0.45 of its GPU. With ``rollout.tensor_parallel=2``
    instead, one rollout engine in both bundles.
    """

    bundles: tuple[dict[str, float], ...]
    rollout_slots: tuple[Slot, ...]
    policy_slots: tuple[Slot, ...]
    policies_per_group: int = 1
    """Policies with the same slots in the same group."""

    @property
    def num_gpus(self) -> int:
        """GPUs that the policy uses, alone or with others, and that have to be on one node."""
        return sum("GPU" in bundle for bundle in self.bundles)

    def num_groups(self, num_policies: int) -> int:
        """Placement groups that so many policies need."""
        return -(-num_policies // self.policies_per_group)

    def policies_fitting(self, node_gpus: Iterable[int]) -> int:
        """Policies for which nodes with so many GPUs have room: of 2 GPUs each, nodes of 3 and 4
        GPUs hold three."""
        return sum(gpus // self.num_gpus for gpus in node_gpus) * self.policies_per_group


def plan_policy(config: Config, *, device: Device) -> PolicyPlacement:
    """Place the engines of one policy (every policy has the same shape).

    cuda, colocated: rank i has GPU i, and engine i the GPUs i*tp to (i+1)*tp - 1, where tp is
    ``rollout.tensor_parallel``. cuda, disaggregated: the ranks' GPUs first, then the engines'. cpu:
    one bundle for all.
    """
    tp = config.rollout.tensor_parallel
    num_engines, num_ranks = config.rollout.engines_per_policy, config.policy.ranks_per_policy
    if device == "cpu":
        share = CPU_SHARE * (num_engines + num_ranks)
        return PolicyPlacement(
            bundles=({"CPU": share},),
            rollout_slots=(Slot(0, 0.0),) * num_engines,
            policy_slots=(Slot(0, 0.0),) * num_ranks,
        )
    colocated = config.cluster.placement == "colocated"
    sharers = config.cluster.policies_per_gpu
    gpu_share = (SHARED_GPU_SHARE if colocated else 1.0) / sharers
    first_engine = 0 if colocated else num_ranks
    bundle = {"GPU": 1.0, "CPU": 2 * CPU_SHARE * sharers}
    return PolicyPlacement(
        bundles=(bundle,) * config.gpus_per_policy,
        rollout_slots=tuple(
            Slot(first_engine + i * tp, gpu_share, num_bundles=tp) for i in range(num_engines)
        ),
        policy_slots=tuple(Slot(i, gpu_share) for i in range(num_ranks)),
        policies_per_group=sharers,
    )


def family_in_words(family: Sequence[int]) -> str:
    """``(0,) -> "policy 0"``, ``(0, 2) -> "policies 0, 2"``"""
    return f"{'policy' if len(family) == 1 else 'policies'} {', '.join(map(str, family))}"


def label_selectors(
    num_groups: int, *, holders: Sequence[str], device: Device
) -> list[dict[str, str]]:
    """Labels of the node that each placement group has to be on.

    Groups that need GPUs are wherever Ray finds enough of them. Those on CPUs, of which Ray is
    asked next to nothing, take turns on ``holders``, Ray's ids of the nodes that have any.
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
    """
    shares = []
    for node in nodes:
        room = node.num_gpus // max(placement.num_gpus, 1) * placement.policies_per_group
        num_ranks = min(num_policies, room) * len(placement.policy_slots)
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
    raise ValueError(
        f"too few GPUs: {num_policies} policies need {needed} GPUs each on one node "
        f"({gpus_in_all(placement, num_policies)} in all, {placement.policies_per_group} policies "
        f"per GPU); GPUs of the nodes: {nodes}, room for {fitting} policies. Use fewer agents "
        f"(society.num_agents={max(fitting, 1)}), fewer GPUs per policy "
        "(policy.ranks_per_policy, rollout.engines_per_policy and rollout.tensor_parallel), "
        "or share policies (society.policy_of_agent)."
    )


def gpus_in_all(placement: PolicyPlacement, num_policies: int) -> int:
    """GPUs that a society needs: 4 policies of 2 GPUs need 8, or 4 when 2 share each GPU."""
    return placement.num_gpus * placement.num_groups(num_policies)
