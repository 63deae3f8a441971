"""The environment of engines: threads on a CPU, and the allocator of GPU memory."""

import platform
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tables import cases

from comas.config.schema import Config
from comas.engines import allocator
from comas.engines.rollout import vllm_options
from comas.engines.rollout.vllm_options import engine_environment
from comas.preflight import machine
from comas.preflight.machine import Machine, usable_cores
from comas.preflight.memory import ModelShape
from comas.preflight.sharding import SMALL_PARAMETERS, settle_threads


def shape(num_parameters):
    return ModelShape(num_parameters, 2, 64, 256, 64, 64, 512)


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
    shapes = [shape(SMALL_PARAMETERS + size) for size in sizes or [0] * policies]
    result, line = settle_threads(config, shapes=shapes, machine=cpu)
    assert line is not None
    assert replace(result, cluster=config.cluster) == config  # nothing else is decided
    return result.cluster.cpu_threads, line


@cases("keys, threads")
def test_threads_are_the_cores_over_what_works_at_once(keys, threads):
    assert settled(**keys)[0] == threads


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


@pytest.mark.parametrize(("spec", "setting"), [(None, "0"), (object(), None)])
def test_engines_have_the_environment_of_their_device(monkeypatch, spec, setting):
    monkeypatch.setattr(vllm_options, "find_spec", {"flashinfer": spec}.get)
    on_gpu, on_cpu = engine_environment("cuda"), engine_environment("cpu", threads=3)
    # No expandable segments, as their sleep has a pool of its own.
    assert not any(name in on_gpu for name in allocator.VARIABLES)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", allocator.EXPANDABLE)
    assert engine_environment("cuda")["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:False"
    assert on_gpu["VLLM_WSL2_ENABLE_PIN_MEMORY"] == "1"  # vLLM leaves WSL2 without
    assert on_gpu["GLOO_SOCKET_IFNAME"] == on_gpu["NCCL_SOCKET_IFNAME"] == "lo"
    assert on_gpu.get("VLLM_USE_FLASHINFER_SAMPLER") == setting  # "0" where it is missing
    assert "VLLM_USE_FLASHINFER_SAMPLER" not in on_cpu
    # Threads share no sequence, so that responses do not depend on their number.
    assert (on_cpu["OMP_NUM_THREADS"], on_cpu["OMP_WAIT_POLICY"]) == ("3", "PASSIVE")
    assert on_cpu["VLLM_CPU_ATTN_SPLIT_KV"] == "0"


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
