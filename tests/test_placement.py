"""The slots of engines, and the errors when they do not fit."""

from typing import Any

import pytest

from comas.config.schema import Cluster, Config, Policy, Rollout
from comas.engines.cluster.placement import (
    PolicyPlacement,
    Slot,
    check_gpus,
    gpus_in_all,
    plan_policy,
)


def planned(
    *, engines: int = 2, tensor_parallel: int = 1, ranks: int = 2, **cluster: Any
) -> PolicyPlacement:
    config = Config(
        rollout=Rollout(engines_per_policy=engines, tensor_parallel=tensor_parallel),
        policy=Policy(ranks_per_policy=ranks),
        cluster=Cluster(**cluster),
    )
    return plan_policy(config, device="cuda")


def places(slots: tuple[Slot, ...]) -> list[list[int]]:
    return [list(slot.bundles) for slot in slots]


def test_sharded_engines_share_the_gpus_of_ranks_or_have_their_own():
    placement = planned(engines=2, tensor_parallel=2, ranks=4)
    assert placement.num_gpus == 4
    assert places(placement.rollout_slots) == [[0, 1], [2, 3]]
    assert places(placement.policy_slots) == [[0], [1], [2], [3]]
    for bundle in range(4):
        slots = [*placement.rollout_slots, *placement.policy_slots]
        assert sum(slot.num_gpus for slot in slots if bundle in slot.bundles) == 0.9
    placement = planned(engines=2, tensor_parallel=3, ranks=2, placement="disaggregated")
    assert placement.num_gpus == 8  # 2 + 2 x 3
    assert placement.policy_slots == (Slot(0, 1.0), Slot(1, 1.0))
    assert placement.rollout_slots == (Slot(2, 1.0, 3), Slot(5, 1.0, 3))
    with pytest.raises(ValueError, match=r"4 policies need 8 GPUs each .*rollout\.tensor_parallel"):
        check_gpus(placement, num_policies=4, node_gpus=[8, 8, 8, 7])


def test_policies_that_share_gpus_each_ask_for_their_part_of_whole_ones():
    placement = planned(policies_per_gpu=2)
    assert [bundle["GPU"] for bundle in placement.bundles] == [1.0, 1.0]
    assert (placement.num_gpus, placement.policies_per_group, placement.num_groups(3)) == (2, 2, 2)
    slots = [*placement.rollout_slots, *placement.policy_slots]
    assert [slot.num_gpus for slot in slots] == [0.225] * 4  # of 2 policies: 0.9 of each GPU
    assert gpus_in_all(placement, 3) == 4  # two policies on the first pair, one on the second
    check_gpus(placement, num_policies=4, node_gpus=[4])
    with pytest.raises(ValueError, match="room for 4 policies"):
        check_gpus(placement, num_policies=5, node_gpus=[5])


def test_on_cpu_one_bundle_holds_every_engine_and_no_gpu():
    placement = plan_policy(Config(), device="cpu")
    assert placement.num_gpus == 0
    assert placement.bundles == ({"CPU": pytest.approx(0.04)},)  # 4 processes x 0.01
    assert {slot.bundle_index for slot in placement.rollout_slots} == {0}


@pytest.mark.parametrize(("node_gpus", "room"), [([], 0), ([7], 3), ([3, 4], 3), ([1] * 8, 0)])
def test_too_few_gpus_is_an_error_with_the_numbers(node_gpus, room):
    check_gpus(planned(), num_policies=4, node_gpus=[3, 5, 2])
    said = f"4 policies need 2 GPUs each on one node .*room for {room} policies"
    with pytest.raises(ValueError, match=said):
        check_gpus(planned(), num_policies=4, node_gpus=node_gpus)
