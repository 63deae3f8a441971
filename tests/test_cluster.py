"""A Ray cluster: the slots of engines, the checks of several nodes, and a run on two."""

import dataclasses
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster as RayCluster
from small_runs import FAMILIES, QUICKSTART, rows_of, tiny_settings
from tables import cases

from comas.__main__ import main
from comas.config.schema import Cluster, Config, Policy, Rollout
from comas.engines.cluster.nodes import joined, own_address
from comas.engines.cluster.placement import Node, Slot, check_gpus, gpus_in_all, plan_policy
from comas.preflight import preparation
from comas.preflight.configuration import load_config
from comas.preflight.machine import Machine, describe_machine
from comas.preflight.preparation import check_shared, cluster_machine
from comas.run.status import trained_steps

HEAD = Node("a", "10.0.0.1", num_cpus=4, num_gpus=0)
GPU_NODE = Node("b", "10.0.0.2", num_cpus=64, num_gpus=8)


LARGE = Machine("cuda", 8, 80, 2000, has_cuda_compiler=True)
SMALL = Machine("cuda", 4, 40, 1000, has_cuda_compiler=False)


@cases("address, reason", ("ray://head:10001", "a Ray client"), ("127.0.0.1:1", ".*refused"))
def test_an_address_without_a_cluster_is_told_at_once(monkeypatch, address, reason):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    said = f"^RAY_ADDRESS={address}: {reason}.* Give the address of a running Ray [^\n]*`ray start`"
    with pytest.raises(ValueError, match=said):
        joined(address).__enter__()


def test_a_run_of_one_machine_listens_on_the_loopback_address_alone():
    assert own_address() == "127.0.0.1"


@cases(
    "nodes, wanted, device, holders",
    ([HEAD, GPU_NODE], "auto", "cuda", [GPU_NODE]),
    ([HEAD, GPU_NODE], "cpu", "cpu", [HEAD, GPU_NODE]),
    ([HEAD], "auto", "cpu", [HEAD]),
    ([HEAD], "cuda", None, []),
)
def test_a_head_without_gpus_holds_no_engine(monkeypatch, tmp_path, nodes, wanted, device, holders):
    def on_nodes(nodes, function, *arguments):
        asked.append(nodes)
        if function is not describe_machine:
            return [function(*arguments) for _ in nodes]
        return [LARGE, SMALL]

    asked: list[list[Node]] = []
    monkeypatch.setattr(preparation, "joined", lambda address: nullcontext())
    monkeypatch.setattr(preparation, "alive_nodes", lambda: nodes)
    monkeypatch.setattr(preparation, "on_nodes", on_nodes)
    config = load_config(None, [f"cluster.device={wanted}", f"saves={tmp_path}"])
    if device is None:
        with pytest.raises(ValueError, match=r"cluster\.device=cuda, but no node"):
            cluster_machine(config, "auto")
    else:
        # What every node has, but the most GPUs.
        assert cluster_machine(config, "auto") == dataclasses.replace(SMALL, num_gpus=8)
        assert asked == [holders, holders]


def test_a_folder_that_a_node_does_not_share_is_an_error_that_names_both(tmp_path, monkeypatch):
    def on_nodes(nodes, function, path):
        elsewhere = Path("/nowhere") / path.name
        return [function(path if node == HEAD else elsewhere) for node in nodes]

    monkeypatch.setattr(preparation, "on_nodes", on_nodes)
    check_shared(tmp_path, [HEAD])
    with pytest.raises(ValueError, match=rf"saves={tmp_path} is not the same .*: 10\.0\.0\.2 can"):
        check_shared(tmp_path, [HEAD, GPU_NODE])
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def ray_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    """A head without engines and two nodes, all on this machine."""
    small = {"object_store_memory": 80 << 20, "include_dashboard": False}
    ray_cluster = RayCluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    for _ in range(2):
        ray_cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster.address)
    yield ray_cluster
    ray_cluster.shutdown()


@pytest.mark.stack
@pytest.mark.slow
def test_two_policies_train_on_two_nodes_continue_there_and_outlive_one(ray_cluster, tmp_path):
    """By RAY_ADDRESS, with a head node that has no CPUs."""
    settings = (
        *("interaction.num_rounds=1", "rollout.max_prompt_tokens=4000"),
        *("rollout.max_response_tokens=16", "rollout.cpu_kv_cache_mib=32"),
        *("algorithm.mask_truncated=false", "training.num_steps=2", "cluster.device=auto"),
        *("training.save_every=1", "training.validate_every=20", "validation.num_questions=1"),
    )
    assert main([str(QUICKSTART), *tiny_settings(tmp_path, *settings, families=FAMILIES)]) == 0
    run = (tmp_path / "saves/latest").resolve()

    def lose_a_node_after_step_3() -> None:
        while '"step": 3' not in (run / "metrics.jsonl").read_text():
            time.sleep(0.1)
        lost = max(ray_cluster.worker_nodes, key=lambda node: node.node_id)
        ray_cluster.remove_node(lost, allow_graceful=False)

    threading.Thread(target=lose_a_node_after_step_3, daemon=True).start()
    assert main([f"resume={run}", "training.num_steps=12", "resume_changed=true"]) == 0
    assert trained_steps(run) == 12
    assert [row["step"] for row in rows_of(run)] == list(range(13))
    log = (run / "train.log").read_text()
    assert "continuing after step 2 of 12" in log
    # Ray may notice late: the first restart may still use the lost node.
    assert log.count("the society is started again from its newest checkpoint") in (1, 2)


def planned(*, engines=2, tensor_parallel=1, ranks=2, **cluster: Any):
    config = Config(
        rollout=Rollout(engines_per_policy=engines, tensor_parallel=tensor_parallel),
        policy=Policy(ranks_per_policy=ranks),
        cluster=Cluster(**cluster),
    )
    return plan_policy(config, device="cuda")


def test_sharded_engines_share_the_gpus_of_ranks_or_have_their_own():
    placement = planned(engines=2, tensor_parallel=2, ranks=4)
    assert placement.num_gpus == 4
    assert [[*slot.bundles] for slot in placement.rollout_slots] == [[0, 1], [2, 3]]
    assert [[*slot.bundles] for slot in placement.policy_slots] == [[0], [1], [2], [3]]
    for bundle in range(4):
        slots = [*placement.rollout_slots, *placement.policy_slots]
        assert sum(slot.num_gpus for slot in slots if bundle in slot.bundles) == 0.9
    placement = planned(engines=2, tensor_parallel=3, ranks=2, placement="disaggregated")
    assert placement.num_gpus == 8  # 2 + 2 x 3
    assert placement.policy_slots == (Slot(range(1), 1.0), Slot(range(1, 2), 1.0))
    assert placement.rollout_slots == (Slot(range(2, 5), 1.0), Slot(range(5, 8), 1.0))
    with pytest.raises(ValueError, match=r"4 policies need 8 GPUs each .*rollout\.tensor_parallel"):
        check_gpus(placement, num_policies=4, node_gpus=[8, 8, 8, 7])


def test_policies_that_share_gpus_each_ask_for_their_part_of_whole_ones():
    placement = planned(policies_per_gpu=2)
    assert [bundle["GPU"] for bundle in placement.bundles] == [1.0, 1.0]
    assert (placement.num_gpus, placement.policies_per_group) == (2, 2)
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
    assert {slot.bundles for slot in placement.rollout_slots} == {range(1)}


@pytest.mark.parametrize(("node_gpus", "room"), [([], 0), ([7], 3), ([3, 4], 3), ([1] * 8, 0)])
def test_too_few_gpus_is_an_error_with_the_numbers(node_gpus, room):
    check_gpus(planned(), num_policies=4, node_gpus=[3, 5, 2])
    said = f"4 policies need 2 GPUs each on one node .*room for {room} policies"
    with pytest.raises(ValueError, match=said):
        check_gpus(planned(), num_policies=4, node_gpus=node_gpus)
