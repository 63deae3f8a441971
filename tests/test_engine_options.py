"""Options go to the engines as they are, but for those that a run cannot do without."""

from dataclasses import fields
from pathlib import Path

import pytest
from config_faults import only_fault
from tables import cases, pairs

from comas.config import config_as_yaml
from comas.config.schema import Optimization, Policy, Rollout
from comas.engines.policy.deepspeed_options import deepspeed_config
from comas.engines.rollout.vllm_options import engine_arguments
from comas.preflight.configuration import load_config
from comas.preflight.engine_options import REFUSED_OF_VLLM

QUICKSTART = Path(__file__).parents[1] / "configs/quickstart.yaml"


def test_an_option_comes_over_what_the_keys_make():
    rollout = Rollout(vllm_options={"enforce_eager": False, "async_scheduling": True})
    arguments = engine_arguments(
        "m", rollout=rollout, device="cpu", weight_transfer="shared_memory", seed=0
    )
    assert arguments["enforce_eager"] is False and arguments["async_scheduling"] is True


def test_an_entry_of_a_section_leaves_its_other_entries():
    options = {"zero_optimization": {"overlap_comm": True}, "wall_clock_breakdown": True}
    policy = Policy(zero_stage=2, deepspeed_options=options)
    config = deepspeed_config(policy, Optimization(), device="cpu", num_trained=10)
    plain = deepspeed_config(Policy(zero_stage=2), Optimization(), device="cpu", num_trained=10)
    zero = plain["zero_optimization"] | {"overlap_comm": True}
    assert config == plain | {"zero_optimization": zero, "wall_clock_breakdown": True}


def test_options_are_set_whole_or_one_by_one_and_kept_with_the_run(tmp_path):
    base, own = tmp_path / "base.yaml", tmp_path / "own.yaml"
    base.write_text("rollout: {vllm_options: {enforce_eager: true, block_size: 32}}\n")
    own.write_text(f"base: {base}\nrollout: {{vllm_options: {{block_size: 16}}}}\n")
    config = load_config(own, ["rollout.vllm_options.max_logprobs=5"])
    options = {"enforce_eager": True, "block_size": 16, "max_logprobs": 5}
    assert config.rollout.vllm_options == options
    (tmp_path / "kept.yaml").write_text(config_as_yaml(config))
    assert load_config(tmp_path / "kept.yaml", []) == config
    assert load_config(own, ["rollout.vllm_options={}"]).rollout.vllm_options == {}
    anew = load_config(own, ["rollout.vllm_options={}", "rollout.vllm_options={block_size: 8}"])
    assert anew.rollout.vllm_options == {"block_size": 8}


def test_a_fault_names_the_option_its_line_and_the_reason(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text("rollout:\n  vllm_options:\n    enforce_eager: true\n    seed: 3\n")
    fault = only_fault(file=file)
    assert f"rollout.vllm_options.seed = 3  ({file}, line 4)" in fault
    assert "every request has a seed of its own" in fault


@cases("override, said", *pairs("config", "an option"))
def test_what_a_run_relies_on_and_what_nobody_knows_is_refused(override, said):
    assert said in only_fault(override)


@pytest.mark.stack
def test_every_refused_option_is_one_of_vllm():
    from vllm import EngineArgs

    assert {field.name for field in fields(EngineArgs)} >= set(REFUSED_OF_VLLM)
