"""The allocator of GPU memory: expandable segments in ranks only, except for shared memory."""

import platform
from types import SimpleNamespace

import pytest
import torch

from comas.engines import allocator
from comas.engines.rollout.vllm_options import engine_environment


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
