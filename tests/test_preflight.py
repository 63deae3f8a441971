"""The checks of the preflight, from readings given as data."""

import dataclasses
from pathlib import Path

from small_runs import QUICKSTART, REPOSITORY
from tables import cases

from comas.config.schema import Config
from comas.preflight.checks import Check, errors_of
from comas.preflight.configuration import load_config
from comas.preflight.machine import Machine, choose_device, why_on_cpu
from comas.preflight.memory import GIB, ModelShape, engine_memory
from comas.preflight.preparation import check_device, check_disk
from comas.preflight.sharding import check_memory

QWEN_3B = ModelShape(3_085_938_688, 36, 2048, 11008, 256, 151936)
EIGHT_A100 = Machine("cuda", 8, 79 * GIB, 1000 * GIB, has_cuda_compiler=True)


def paper(**policy: object) -> Config:
    config = load_config(REPOSITORY / "configs/comas.yaml", [])
    values = {"zero_stage": 2, "adam_offload": False} | policy
    return dataclasses.replace(config, policy=dataclasses.replace(config.policy, **values))


def test_a_run_that_asks_for_cuda_never_takes_the_cpu():
    assert choose_device("cuda", num_gpus=0) == "cuda"
    assert load_config(REPOSITORY / "configs/comas.yaml", []).cluster.device == "cuda"
    [error] = errors_of(check_device(paper(), "cuda", num_gpus=0))
    assert "torch sees no GPU: Torch not compiled with CUDA" in error
    assert "cluster.device=cpu" in error
    assert errors_of(check_device(paper(), "cuda", num_gpus=8)) == []
    [error] = errors_of(check_device(paper(), "cuda", num_gpus=3))
    assert "4 policies need 2 GPUs each" in error


def test_auto_takes_the_cpu_and_says_why_if_there_is_a_driver(monkeypatch):
    assert choose_device("auto", num_gpus=0) == choose_device("cpu", num_gpus=8) == "cpu"
    assert choose_device("auto", num_gpus=8) == "cuda"
    for has_driver in (True, False):
        monkeypatch.setattr(Path, "exists", lambda path, found=has_driver: found)
        assert why_on_cpu("cpu", num_gpus=0) is None
        assert bool(why_on_cpu("auto", num_gpus=0)) == has_driver
        [check] = check_device(load_config(QUICKSTART, []), "cpu", num_gpus=0)
        assert check.error is None and ("no GPU" in str(check.warning)) == has_driver


def gpu_memory(machine: Machine, config: Config | None = None, *, host_gib: int = 1000):
    """The checks of GPU memory in updates and sampling, and host memory, for the paper's run."""
    machine = dataclasses.replace(machine, host_bytes=host_gib * GIB)
    return check_memory(config or paper(), [QWEN_3B] * 4, machine)


def test_an_update_is_shown_part_by_part():
    update, sampling, _ = gpu_memory(EIGHT_A100)
    # 2 x 3.086e9 bytes of weights; 12 and 4 on each of 2 ranks.
    assert "weights 5.7, optimiser 17.2, gradients 5.7," in update.needed
    assert update.error is update.warning is None
    # 36 layers x 2 x 256 x 2 bytes x 32768 tokens = 1.125 GiB beside the weights' 5.7; 8,192 tokens
    # x (2 x 2048 + 3 x 11008) x 2 bytes, 256 sequences x 151,936 x 3 x 4 bytes.
    expected = (2 * 3_085_938_688, 608_174_080 + 466_747_392, 36 * 2 * 256 * 2 * 32768)
    assert engine_memory(QWEN_3B, paper()) == expected
    assert sampling.needed == "7.9 GiB (weights 5.7, a batch 1.0, KV cache 1.1)"
    # (0.6 x 79 - 5.75 - 1.0) / 1.125
    assert sampling.present == "47.4 GiB (36 longest sequences)"
    no_cache = dataclasses.replace(QWEN_3B, kv_size=0)
    assert check_memory(paper(), [no_cache] * 4, EIGHT_A100)[1].present == "47.4 GiB"


def test_states_that_cannot_fit_are_an_error_and_a_high_peak_is_a_warning():
    small = dataclasses.replace(EIGHT_A100, gpu_bytes=24 * GIB)
    update, sampling, _ = gpu_memory(small)
    assert "fill 28.7 GiB of a GPU that has 18.8" in str(update.error)
    assert sampling.error is None
    tight = dataclasses.replace(EIGHT_A100, gpu_bytes=40 * GIB)
    update, _, _ = gpu_memory(tight)
    assert update.error is None and update.warning is not None
    tiny = dataclasses.replace(EIGHT_A100, gpu_bytes=11 * GIB)
    _, sampling, _ = gpu_memory(tiny)
    assert "gives an engine 6.6 GiB" in str(sampling.error)


def test_the_papers_society_with_offload_needs_hundreds_of_gib_of_host_memory():
    config = load_config(REPOSITORY / "configs/comas_paper_memory.yaml", [])
    # 8 ranks: 12 bytes of 3.086e9 / 2 parameters, gradients pinned in 8 and in 4 + 4 GiB, weights
    # in 4; 16 GiB of object store.
    # 8 x (17.24 + 16 + 4) + 16
    little, enough, plenty = (
        gpu_memory(EIGHT_A100, config, host_gib=gib)[2] for gib in (256, 320, 384)
    )
    assert "314.0 of 256.0 GiB are needed" in str(little.error)
    assert enough.error is None and enough.warning is not None
    assert plenty == Check("host memory", "314.0 GiB", "384.0 GiB")


@cases("policy, needed")
def test_disk_is_needed_for_the_kept_checkpoints_and_the_one_being_written(policy, needed):
    config, sizes = paper(**policy), dict.fromkeys(range(4), 10**9)
    check = check_disk(config, sizes=sizes, free=250 * GIB)
    assert (check.needed, check.error) == (needed, None)
    error = check_disk(config, sizes=sizes, free=50 * GIB).error
    assert f"2 checkpoints and the one being written need {needed[:9]}" in str(error)


def test_frozen_shared_and_kept_policies_are_counted_as_they_are_saved():
    config, sizes = paper(zero_stage=3), dict.fromkeys(range(4), 10**9)
    kept = [check_disk(config, sizes=sizes, free=0, num_kept=n).needed[:8] for n in (2, 9)]
    assert kept == ["52.7 GiB"] * 2  # one of 48 GB is being written
    config.society.update_every = [0, 1, 1, 1]
    # Three trained policies of 12 GB in each of 3 checkpoints, and 3 models of 2 GB.
    trained = dict.fromkeys((1, 2, 3), 10**9)
    assert check_disk(config, sizes=trained, free=0).needed.startswith("106.7 GiB")
    config.society.update_every = [1]
    config.society.policy_of_agent = [0, 0, 0, 0]
    assert check_disk(config, sizes={0: 10**9}, free=0).needed.startswith("41.5 GiB")  # 4 models
