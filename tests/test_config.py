"""A configuration is read as a whole, bases included; all its errors are told with remedies."""

import fnmatch
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from config_errors import errors, every_key, only_error
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from small_runs import REPOSITORY, written
from tables import cases, pairs, texts

from comas.config import ConfigError, changed_keys, config_as_yaml, load
from comas.config.errors import yaml_text
from comas.config.former import former_keys
from comas.config.keys import keys_of, owner_of
from comas.config.loading import read
from comas.config.schema import Config, Dpo, Grpo, Optimization, Policy, ReinforcePP, Rollout
from comas.engines.policy.deepspeed_options import deepspeed_config
from comas.engines.rollout.vllm_options import engine_arguments
from comas.preflight import configuration
from comas.preflight.configuration import load_config
from comas.preflight.conflicts import REFUSED, names_of_vllm
from comas.preflight.sizes import derive_sizes
from evaluation import config as evaluation_config

CONFIGS = REPOSITORY / "configs"
ROLES = ("solution", "evaluation", "scoring")


def test_the_papers_config_is_the_default_and_says_where_values_are_from():
    differing = changed_keys(Config(), load_config(CONFIGS / "comas.yaml", []))
    assert {key.partition(".")[0] for key in differing} <= {"cluster"}
    lines = (CONFIGS / "comas.yaml").read_text().splitlines()
    values = [line for line in lines if re.match(r"  \w+: ", line)]
    assert len(values) > 40
    assert [line for line in values if not re.search(r"# \[(3|C|our)\] ?", line)] == []


def test_the_sizes_of_the_papers_run_are_those_of_the_paper():
    sizes = derive_sizes(load_config(CONFIGS / "comas.yaml", []), num_questions=2000)
    assert sizes.num_steps == 31  # 2000 / 64 = 31.25
    assert sizes.num_discussions == 256  # 64 questions * 4 copies
    assert sizes.turns_per_discussion == dict.fromkeys(ROLES, 8)  # 8 rounds, 1 evaluation each
    assert sizes.samples_per_policy == (1536,) * 4  # 256 * 24 turns / 4 agents
    assert sizes.optimizer_steps_per_policy == (24,) * 4  # 1536 / 64
    assert sizes.num_validations == 8  # steps 0, 5, 10, 15, 20, 25, 30, 31


@cases("file, solutions_evaluations_scorings")
def test_an_ablation_has_the_turns_that_its_name_says(file, solutions_evaluations_scorings):
    sizes = derive_sizes(load_config(CONFIGS / file, []), num_questions=2000)
    said = zip(ROLES, solutions_evaluations_scorings, strict=True)
    assert sizes.turns_per_discussion == {role: num for role, num in said if num}


def test_no_two_shipped_configs_write_runs_of_the_same_name():
    files = set(CONFIGS.rglob("*.yaml")) - {*CONFIGS.glob("studies/*"), *CONFIGS.glob("prompts/*")}
    names = [load_config(file, []).name for file in files]
    assert len(set(names)) == len(names)


def test_later_settings_win_and_values_are_typed_as_yaml(tmp_path):
    file = written(tmp_path / "a.yaml", "seed: 1\nrollout:\n  batch_size: 8\n  temperature: 2\n")
    overrides = ["rollout.batch_size=16", "society.models=[a,b/c]", "society.num_agents=2"]
    overrides += ["optimization.learning_rate=1e-5", "training.num_steps=null"]
    overrides += ["validation.discussions=true", "seed=2", "seed=3"]
    config = load_config(file, overrides)
    assert (config.seed, config.rollout.batch_size, config.rollout.temperature) == (3, 16, 2.0)
    assert config.society.models == ["a", "b/c"]
    assert config.optimization.learning_rate == 1e-5
    assert config.training.num_steps is None
    assert config.validation.discussions is True


ODD_TEXTS = ["${seed}", "1e-5", "on", "2024-01-01", "1:30", "010", "a: b", "# a", "", " ", "~"]
ODD_TEXTS += ["null", "<<", "=", ".5", "a\n b\n", "'", '"', "\ufeff", "\x85", "\u2028"]
TEXTS = st.text() | st.sampled_from(ODD_TEXTS)
NAMES = TEXTS.filter(lambda name: "." not in name) | st.sampled_from(['"', "1", "a=b", "base"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
).filter(lambda value: depth_of(value) <= 4)
MAPPINGS = st.dictionaries(NAMES, ANYTHING, max_size=3)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(depth_of, inner), default=0) + isinstance(value, dict | list)


@settings(max_examples=25, phases=[Phase.explicit, Phase.generate])
@given(prompt=TEXTS, names=st.lists(TEXTS, max_size=3), kwargs=MAPPINGS, rate=st.floats(1e-9, 1))
def test_whatever_a_config_holds_is_written_so_that_it_reads_equal(prompt, names, kwargs, rate):
    config = Config(seed=7)
    config.rollout.system_prompt, config.rollout.chat_template_kwargs = prompt, kwargs
    config.logging.trackers, config.society.chat_template_kwargs = names, [kwargs, {}]
    config.optimization.learning_rate = rate
    with TemporaryDirectory() as folder:
        file = Path(folder, "config.yaml")
        file.write_text(config_as_yaml(config), encoding="utf-8")
        read_back, errors = read(Config, file, [])
    assert changed_keys(config, read_back) == {}
    assert read_back.rollout == config.rollout and read_back.society == config.society
    assert read_back.logging == config.logging
    assert all("must be" in error.constraint for error in errors)  # such as the learning rate 0


def test_reading_a_config_imports_no_torch():
    code = (
        "import sys; from pathlib import Path; from comas.config import Config, load\n"
        'load(Config, Path("configs/quickstart.yaml"), ["seed=1"]); print("torch" in sys.modules)'
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=REPOSITORY)
    assert said.strip() == "False"


def test_another_algorithm_keeps_the_keys_of_the_base_that_it_has(tmp_path):
    base = tmp_path / "base.yaml"
    keys = "kl_coef: 0.02, clip_epsilon: 0.1, role_weights: {scoring: 0.5}"
    base.write_text(f"algorithm: {{{keys}}}\n")
    own = tmp_path / "own.yaml"
    own.write_text(f"base: {base}\nalgorithm:\n  group_by: [role]\n  name: grpo\n")
    config = load_config(own, ["algorithm.clip_epsilon=0.3"])
    kept = {"kl_coef": 0.02, "role_weights": {"scoring": 0.5}}
    assert config.algorithm == Grpo(group_by=["role"], clip_epsilon=0.3, **kept)
    assert load_config(written(tmp_path / "config.yaml", config_as_yaml(config)), []) == config
    config = load_config(own, ["algorithm.beta=0.2", "algorithm.name=dpo"])
    assert config.algorithm == Dpo(beta=0.2)
    config = load_config(own, ["algorithm.name=dpo", "algorithm.name=reinforce_pp"])
    assert config.algorithm == ReinforcePP(clip_epsilon=0.1, **kept)


def test_a_key_of_another_algorithm_is_refused(tmp_path):
    file = written(tmp_path / "own.yaml", "algorithm:\n  name: dpo\n  kl_coef: 0.1\n")
    error = only_error(file=file)
    assert f"algorithm.kl_coef = 0.1  ({file}, line 3)\n   is no key of this type" in error
    assert "leave it out, or set algorithm.name to reinforce_pp or grpo or custom" in error
    assert "set algorithm.name to custom" in only_error("algorithm.estimator=grpo")


def test_all_errors_of_file_and_command_line_are_reported_at_once(tmp_path):
    file = written(tmp_path / "bad.yaml", "rollout:\n  batch_size: 0\n  dtype: fp8\nsociety: 3\n")
    found = errors("seed=x", "nonsense", "rollout.temprature=1", file=file)
    assert len(found) == 6
    said = [
        f"rollout.batch_size = 0  ({file}, line 2)\n   must be greater than or equal to 1",
        *("rollout.dtype = fp8", "'float32', 'bfloat16' or 'float16'"),
        f"society = 3  ({file}, line 4)\n   is a section, not a key",
        'seed = x  (command line)\n   must be a valid integer\n   -> write it like "seed=0"',
        *("nonsense", "is not of the form key=value", "did you mean rollout.temperature?"),
    ]
    assert [each for each in said if each not in "\n".join(found)] == []
    with pytest.raises(ConfigError, match="6 errors"):
        load_config(file, ["seed=x", "nonsense", "rollout.temprature=1"])


@cases("key, remedy", *pairs("config", "an unknown key"))
def test_an_unknown_key_is_refused_with_the_nearest_known_one(key, remedy):
    said = f"{key} = 1  (command line)\n   is not a known key\n   -> {remedy}"
    assert said in only_error(f"{key}=1")


@cases(
    "override, constraint",
    *pairs("config", "a value"),
    (f"seed={'9' * 5000}", "must be a valid integer"),
    (f"seed={10**400}", "must be less than or equal to 4294967295"),
    (f"society.models={'[' * 600}a{']' * 600}", "maximum recursion depth exceeded"),
)
def test_a_wrong_value_is_refused_with_its_constraint(override, constraint):
    error = only_error(override)
    assert constraint in error and "\n   -> " in error
    assert override.partition("=")[0] in error


@pytest.mark.parametrize("overrides", texts("config", "allowed"))
def test_the_borders_of_what_is_allowed_are_allowed(overrides):
    changed = changed_keys(load_config(None, []), load_config(None, overrides.split()))
    named = {override.partition("=")[0] for override in overrides.split()}
    assert {key for key in changed if not key.startswith("algorithm.")} <= named


def test_a_consequence_of_an_error_is_not_reported_as_another():
    error = only_error("society.num_agents=0", "society.models=[a,b,c]")
    assert "must be greater than or equal to 1" in error


@cases("overrides, said", *pairs("config", "keys that exclude"))
def test_keys_that_exclude_each_other_are_told_with_the_remedy(overrides, said):
    assert said in only_error(*overrides.split())


@cases("content, constraint")
def test_a_malformed_file_is_one_error_that_names_it(tmp_path, content, constraint):
    file = tmp_path / "bad.yaml"
    file.write_text(content, "latin-1")
    [error] = errors(file=file)
    assert error.startswith(f"CONFIG = {file}") and constraint in error


def recipe(folder: Path, name: str, content: str) -> Path:
    return written(folder / f"{name}.yaml", content)


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
    [error] = errors(file=recipe(tmp_path, "own", f"seed: 1\nbase: {base.format(**paths)}\n"))
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
                loaded = load(schema_class, None, [f"{name}={yaml_text(key.example)}"])
                changed = changed_keys(schema_class(), loaded)
                assert all(f"{other}.".startswith(f"{name}.") for other in changed)


def test_options_override_single_entries_that_the_keys_make():
    rollout = Rollout(vllm_options={"enforce_eager": False, "async_scheduling": True})
    options = {"device": "cpu", "weight_transfer": "shared_memory", "seed": 0}
    arguments = engine_arguments("m", rollout=rollout, **options)
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

    assert (names := names_of_vllm()) == {field.name for field in fields(EngineArgs)}
    patterns = " ".join(REFUSED["vllm"]).replace(".model", "").split()
    assert [each for each in patterns if not fnmatch.filter(names, each)] == []
