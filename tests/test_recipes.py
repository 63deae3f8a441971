"""Configuration files based on others, options of the engines, former keys."""

import fnmatch
import re
from dataclasses import fields
from pathlib import Path

import pytest
from config_errors import errors, every_key, only_error
from tables import cases, pairs

from comas.config import Config, changed_keys, config_as_yaml, load
from comas.config.former import former_keys
from comas.config.keys import keys_of, owner_of
from comas.config.schema import Optimization, Policy, Rollout
from comas.engines.policy.deepspeed_options import deepspeed_config
from comas.engines.rollout.vllm_options import engine_arguments
from comas.preflight import configuration
from comas.preflight.configuration import load_config
from comas.preflight.engine_options import REFUSED_OF_VLLM, names_of_vllm
from evaluation import config as evaluation_config


def recipe(folder: Path, name: str, content: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(content)
    return path


def test_bases_form_chains_and_the_nearest_file_wins(tmp_path):
    first = recipe(tmp_path, "first", "seed: 1\nrollout: {batch_size: 8, temperature: 2}\n")
    second = recipe(tmp_path, "second", f"base: {first}\nseed: 2\nsociety: {{num_agents: 3}}\n")
    config = load_config(recipe(tmp_path, "third", f"base: {second}\nname: third\nseed: 3\n"), [])
    assert (config.name, config.seed, config.society.num_agents) == ("third", 3, 3)
    assert (config.rollout.batch_size, config.rollout.temperature) == (8, 2.0)


def test_errors_name_the_file_in_which_the_key_stands(tmp_path):
    base = recipe(tmp_path, "base", "rollout:\n  vllm_options:\n    seed: 3\n  batch_size: 0\n")
    file = recipe(tmp_path, "own", f"base: {base}\n\npolicy:\n  zero_stage: 9\n")
    stage, batch, option = sorted(errors(file=file))
    assert f"policy.zero_stage = 9  ({file}, line 4)" in stage
    assert f"rollout.batch_size = 0  ({base}, line 4)" in batch
    assert f"rollout.vllm_options.seed = 3  ({base}, line 3)" in option
    assert "every request has its own seed" in option


@cases("base, constraint, remedy")
def test_an_invalid_base_is_one_error_with_its_line(tmp_path, base, constraint, remedy):
    paths = {"own": str(tmp_path / "own.yaml"), "other": str(tmp_path / "other.yaml")}
    recipe(tmp_path, "other", f"base: {paths['own']}\n")
    own = recipe(tmp_path, "own", f"seed: 1\nbase: {base.format(**paths)}\n")
    [error] = errors(file=own)
    assert error.startswith("base = ") and ", line " in error
    assert constraint.format(**paths) in error and remedy in error


@pytest.mark.parametrize(("num_gpus", "is_here"), [(1, False), (8, True)])
def test_a_run_without_config_is_the_papers_if_possible(tmp_path, monkeypatch, num_gpus, is_here):
    questions = tmp_path / "q.jsonl"
    paper = recipe(tmp_path, "paper", f"data: {{train: {questions}, validation: {questions}}}\n")
    monkeypatch.setattr(configuration, "count_gpus", lambda: num_gpus)
    monkeypatch.setattr(configuration, "is_here", lambda model: is_here)
    monkeypatch.setattr(configuration, "PAPER_CONFIG", paper)
    if is_here:
        questions.touch()
    path, reason = configuration.choose_config()
    assert path == (paper if is_here else Path("configs/quickstart.yaml"))
    lacking = ("8 GPUs (found 1)", "the model Qwen/Qwen2.5-3B-Instruct", str(questions))
    said = ("bash scripts/train_comas.sh configs/quickstart.yaml",) if is_here else lacking
    assert all(words in reason for words in said)


@cases("former, present", *pairs("config", "a former name"))
def test_a_former_name_gets_an_error_that_says_the_present_one(former, present):
    [error] = errors(former)
    assert f"was renamed {present}" in error and "-> write " in error


def test_a_key_that_is_gone_is_refused_with_the_reason():
    gone = former_keys()["gone"]
    for error, (key, why) in zip(errors(*(f"{k}=1" for k in gone)), gone.items(), strict=True):
        assert error.startswith(f"{key} = ")
        assert f"is no key any more: {why}\n   -> leave it out" in error


@cases("key, remedy", *pairs("config", "a released key"))
def test_a_key_of_the_released_code_is_refused_with_ours(key, remedy):
    [error] = errors(f"{key}=1")
    assert f"-> a key of the paper's released code: here {remedy}" in error
    [error] = errors("optimization.actor_learning_rate=1")  # in none of its sections
    assert "did you mean optimization.learning_rate?" in error


def test_no_former_name_is_a_present_one_and_each_leads_to_one():
    keys, tables = every_key(), former_keys()
    assert not {*tables["renamed"], *tables["gone"]} & set(keys)
    ours = [*tables["renamed"].values(), *tables["released"].values()]
    assert [said for said in ours if not owner_of(re.split("[ =]", said)[0], keys)] == []


def test_an_example_fits_its_key():
    for schema_class in (Config, evaluation_config.EvaluationConfig):
        for name, key in keys_of(schema_class()).items():
            if key.example is not None:
                loaded = load(schema_class, None, [f"{name}={key.example}"])
                changed = changed_keys(schema_class(), loaded)
                assert all(f"{other}.".startswith(f"{name}.") for other in changed)


def test_options_override_single_entries_that_the_keys_make():
    rollout = Rollout(vllm_options={"enforce_eager": False, "async_scheduling": True})
    arguments = engine_arguments(
        "m", rollout=rollout, device="cpu", weight_transfer="shared_memory", seed=0
    )
    assert arguments["enforce_eager"] is False and arguments["async_scheduling"] is True
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


@cases("override, said", *pairs("config", "an option"))
def test_options_that_break_a_run_and_unknown_ones_are_refused(override, said):
    assert said in only_error(override)


@pytest.mark.stack
def test_the_arguments_of_vllm_are_read_and_each_refused_pattern_matches_one():
    from vllm import EngineArgs

    names = names_of_vllm()
    assert names == {field.name for field in fields(EngineArgs)}
    patterns = " ".join(REFUSED_OF_VLLM).split()
    assert [each for each in patterns if not fnmatch.filter(names, each)] == []
