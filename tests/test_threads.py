"""The environment of engines: threads on a CPU, and the allocator of GPU memory."""

import platform
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tables import cases

from comas.config.schema import Config
from comas.engines import allocator
from comas.engines.rollout.vllm_options import engine_environment
from comas.preflight import machine
from comas.preflight.machine import Machine, usable_cores
from comas.preflight.memory import ModelShape
from comas.preflight.sharding import SMALL_PARAMETERS, settle_threads


def shape(num_parameters):
    return ModelShape(num_parameters, 2, 64, 256, 64, 512)


def settled(
    *, cores, policies=1, engines=1, ranks=1, update_every=(1,), staleness=0, given=None, sizes=None
):
    config = Config()
    config.society.num_agents = policies
    config.society.update_every = list(update_every)
    config.rollout.engines_per_policy, config.policy.ranks_per_policy = engines, ranks
    config.training.max_staleness = staleness
    config.cluster.cpu_threads = given
    cpu = Machine("cpu", 0, 0, 8 << 30, has_cuda_compiler=False, num_cores=cores)
    shapes = [shape(size) for size in sizes or [SMALL_PARAMETERS] * policies]
    result, line = settle_threads(config, shapes=shapes, machine=cpu)
    assert line is not None
    assert replace(result, cluster=config.cluster) == config  # nothing else is decided
    return result.cluster.cpu_threads, line


@cases(
    "keys, threads",
    ({"cores": 2}, 2),
    ({"cores": 2, "policies": 4}, 1),  # never none
    ({"cores": 16, "policies": 3}, 5),  # one core is left
    ({"cores": 16, "engines": 4}, 4),  # of one rank
    ({"cores": 16, "ranks": 8}, 2),
    ({"cores": 16, "policies": 2, "engines": 2, "ranks": 2}, 4),
    ({"cores": 16, "policies": 4, "update_every": (1, 0, 0, 0)}, 4),  # four generate
    ({"cores": 16, "policies": 2, "staleness": 1}, 4),  # two engines beside two ranks
    ({"cores": 16, "policies": 2, "staleness": 1, "update_every": (1, 0)}, 5),  # beside one
    ({"cores": 16, "sizes": [SMALL_PARAMETERS - 1]}, 1),
    ({"cores": 16, "policies": 2, "sizes": [SMALL_PARAMETERS, 1]}, 8),
    ({"cores": 16, "sizes": [1], "given": 3}, 3),
)
def test_threads_are_the_cores_over_what_works_at_once(keys, threads):
    assert settled(**keys)[0] == threads


def test_the_threads_of_an_engine_share_no_sequence_so_that_responses_do_not_depend_on_them():
    environment = engine_environment("cpu", threads=3)
    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert environment["VLLM_CPU_ATTN_SPLIT_KV"] == "0"


def test_on_gpus_threads_are_left_to_the_nodes():
    gpus = Machine("cuda", 8, 79 << 30, 1000 << 30, has_cuda_compiler=True)
    assert settle_threads(config := Config(), shapes=[shape(1)], machine=gpus) == (config, None)


@cases("affinity, quota, cores", (8, 16, 8), (8, 2.5, 2), (8, 0.5, 1))
def test_cores_are_those_of_the_affinity_and_the_quota(monkeypatch, affinity, quota, cores):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(affinity)))
    monkeypatch.setattr("ray._private.utils.get_num_cpus", lambda **_: quota)
    assert usable_cores() == cores


def settings() -> str:
    return torch._C._accelerator_getAllocatorSettings()


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    for name in allocator.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = settings()
    yield
    torch._C._accelerator_setAllocatorSettings(before)


def test_ranks_get_segments_that_grow_unless_the_environment_has_settings(monkeypatch):
    assert allocator.rank_allocator({}) == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    for name in allocator.VARIABLES:
        assert allocator.rank_allocator({name: "max_split_size_mb:128"}) == {}
    release = "6.6.87.2-microsoft-standard-WSL2"
    monkeypatch.setattr(platform, "uname", lambda: SimpleNamespace(release=release))
    assert allocator.rank_allocator({}) == {}


def test_engines_get_none_as_their_sleep_has_a_pool_of_its_own():
    environment = engine_environment("cuda")
    assert not any(name in environment for name in allocator.VARIABLES)
    # And start on WSL2, which vLLM leaves without pinned memory.
    assert environment["VLLM_WSL2_ENABLE_PIN_MEMORY"] == "1"
    assert environment["GLOO_SOCKET_IFNAME"] == environment["NCCL_SOCKET_IFNAME"] == "lo"


@pytest.mark.parametrize("name", allocator.VARIABLES)
def test_segments_are_fixed_within_and_grow_again_afterwards(monkeypatch, name):
    monkeypatch.setenv(name, f"garbage_collection_threshold:0.8,{allocator.EXPANDABLE}")
    with pytest.raises(ZeroDivisionError), allocator.fixed_segments():
        assert settings() == "expandable_segments:False"
        _ = 1 / 0
    assert settings() == allocator.EXPANDABLE  # also after an error
    monkeypatch.delenv(name)
    with allocator.fixed_segments():
        assert settings() == allocator.EXPANDABLE  # unchanged: the environment has none
