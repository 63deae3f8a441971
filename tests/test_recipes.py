"""A recipe says what differs from its base, and what no longer fits is refused."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from comas.config import Config, ConfigError, changed_keys, config_as_yaml, load, schema
from comas.config.keys import keys_of
from comas.preflight import configuration
from comas.preflight.configuration import describe_changes, load_config
from comas.preflight.machine import Gpus
from evaluation import config as evaluation_config
from evaluation.config import read_command

REPOSITORY = Path(__file__).parents[1]
COMAS, QUICKSTART = (REPOSITORY / f"configs/{name}.yaml" for name in ("comas", "quickstart"))


def recipe(folder: Path, name: str, content: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(content)
    return path


def faults(path: Path | None, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return [str(fault) for fault in caught.value.faults]


# ---------------------------------------------------------------- base


def test_a_recipe_has_the_values_of_its_base_but_for_its_own(tmp_path: Path):
    file = recipe(tmp_path, "a", "base: configs/comas.yaml\nrollout:\n  batch_size: 8\n")
    config = load_config(file, ["seed=5"])
    changed = changed_keys(load_config(COMAS, []), config)
    assert changed == {"rollout.batch_size": ("64", "8"), "seed": ("0", "5")}


def test_bases_form_chains_and_the_nearest_file_wins(tmp_path: Path):
    first = recipe(tmp_path, "first", "seed: 1\nrollout: {batch_size: 8, temperature: 2}\n")
    second = recipe(tmp_path, "second", f"base: {first}\nseed: 2\nsociety: {{num_agents: 3}}\n")
    config = load_config(recipe(tmp_path, "third", f"base: {second}\nname: third\nseed: 3\n"), [])
    assert (config.name, config.seed, config.society.num_agents) == ("third", 3, 3)
    assert (config.rollout.batch_size, config.rollout.temperature) == (8, 2.0)


def test_a_base_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert load_config(QUICKSTART, []).optimization.clip_epsilon == 0.2


def test_the_resolved_whole_needs_no_base(tmp_path: Path):
    config = load_config(QUICKSTART, [])
    written = config_as_yaml(config)
    assert "base:" not in written
    assert load_config(recipe(tmp_path, "config", written), []) == config


def test_the_quick_start_says_only_what_differs_from_the_papers_run():
    base, own = load_config(COMAS, []), load_config(QUICKSTART, [])
    lines = [line.partition("#") for line in QUICKSTART.read_text().splitlines()]
    named = {key.partition(".")[2] or key for key in changed_keys(base, own)}
    written = {code.split(":")[0].strip() for code, _, _ in lines if ": " in code}
    assert written - {"base"} == named
    reasons = [reason for code, _, reason in lines if code.startswith("  ")]
    assert all(reasons)


def test_faults_name_the_file_in_which_the_key_stands(tmp_path: Path):
    base = recipe(tmp_path, "base", "seed: 1\nrollout:\n  batch_size: 0\n")
    file = recipe(tmp_path, "own", f"base: {base}\n\npolicy:\n  zero_stage: 9\n")
    stage, batch = sorted(faults(file))
    assert f"policy.zero_stage = 9  ({file}, line 4)" in stage
    assert f"rollout.batch_size = 0  ({base}, line 3)" in batch


def test_files_of_the_repository_are_named_as_in_it(tmp_path: Path):
    text = faults(recipe(tmp_path, "a", "base: configs/quickstart.yaml\npolicy: {dtype: fp8}\n"))
    assert "policy.dtype" in text[0]
    text = faults(QUICKSTART, "policy.micro_batch_size=1")
    assert "policy.micro_batch_tokens = 2048  (configs/quickstart.yaml, line " in text[0]


@pytest.mark.parametrize(
    ("base", "constraint", "remedy"),
    [
        ("configs/coma.yaml", "cannot be read: No such file", "configs/comas.yaml"),
        ("/no/such.yaml", "cannot be read: No such file", "configs/comas.yaml"),
        ("[a, b]", "must be the name of one file", "base: configs/comas.yaml"),
        ("{own}", "leads back to itself: {own} -> {own}", "remove `base` from one"),
        ("{other}", "leads back to itself: {own} -> {other} -> {own}", "remove `base` from one"),
    ],
)
def test_a_base_that_cannot_be_is_one_fault_with_its_line(
    tmp_path: Path, base: str, constraint: str, remedy: str
):
    paths = {"own": str(tmp_path / "own.yaml"), "other": str(tmp_path / "other.yaml")}
    recipe(tmp_path, "other", f"base: {paths['own']}\n")
    own = recipe(tmp_path, "own", f"seed: 1\nbase: {base.format(**paths)}\n")
    [fault] = faults(own)
    assert fault.startswith("base = ")
    assert ", line " in fault
    assert constraint.format(**paths) in fault
    assert remedy in fault


def test_a_damaged_base_is_named(tmp_path: Path):
    base = recipe(tmp_path, "base", "seed: [1\n")
    [fault] = faults(recipe(tmp_path, "own", f"base: {base}\n"))
    assert fault.startswith(f"base = {base}  ({tmp_path}/own.yaml, line 1)\n   is not YAML")


def test_what_changed_is_told_by_section_and_the_command_line_by_key(tmp_path: Path):
    content = "base: configs/comas.yaml\nname: small\nrollout: {batch_size: 8, temperature: 1.0}\n"
    file = recipe(tmp_path, "a", content + "interaction: {schedule: parallel, num_rounds: 2}\n")
    assert describe_changes(file, load_config(file, ["rollout.batch_size=4"])) == [
        "changed from configs/comas.yaml:",
        "  name=small",
        "  interaction: schedule=parallel, num_rounds=2",
        "  rollout: batch_size=8",
        "set rollout.batch_size: 8 -> 4",
    ]
    assert describe_changes(COMAS, load_config(COMAS, [])) == []


def test_a_base_on_the_command_line_is_told_where_it_belongs():
    assert "is for files\n   -> name that file as CONFIG" in faults(None, "base=configs/a.yaml")[0]


def test_keys_are_not_compared_with_those_of_a_file_that_cannot_be_read(tmp_path: Path):
    [fault] = faults(tmp_path / "missing.yaml", "policy.micro_batch_tokens=9")
    assert "No such file" in fault


def test_a_run_without_config_is_told_what_the_papers_society_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(configuration, "read_gpus", lambda: Gpus("580.65.06", 1, 1, 13))
    monkeypatch.setattr(configuration, "is_here", lambda model: False)
    paper = recipe(tmp_path, "paper", "data: {train: /no/a.jsonl, validation: /no/b.jsonl}\n")
    monkeypatch.setattr(configuration, "PAPER_CONFIG", paper)
    path, reason = configuration.choose_config()
    assert path == Path("configs/quickstart.yaml")
    assert (
        f"The paper's society ({paper}) also needs 8 GPUs (found 1), the model "
        "Qwen/Qwen2.5-3B-Instruct, /no/a.jsonl and /no/b.jsonl (built by: bash "
        "scripts/prepare_data.sh)."
    ) in reason


def test_a_run_without_config_is_the_papers_where_all_that_it_needs_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(configuration, "read_gpus", lambda: Gpus("580.65.06", 8, 8, 13))
    monkeypatch.setattr(configuration, "is_here", lambda model: True)
    (tmp_path / "q.jsonl").touch()
    questions = f"data: {{train: {tmp_path}/q.jsonl, validation: {tmp_path}/q.jsonl}}\n"
    paper = recipe(tmp_path, "paper", questions)
    monkeypatch.setattr(configuration, "PAPER_CONFIG", paper)
    path, reason = configuration.choose_config()
    assert path == paper
    assert "bash scripts/train_comas.sh configs/quickstart.yaml" in reason


# ---------------------------------------------------------------- former names


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("training.eval_every=3", "training.eval_every was renamed training.validate_every"),
        ("optimization.gradient_clip=1", "renamed optimization.max_grad_norm"),
        ("optimization.kl_weight=0", "renamed optimization.kl_coef"),
        ("policy.attention=sdpa", "renamed policy.attn_implementation"),
        ("rollout.gpu_memory_share=0.5", "renamed rollout.gpu_memory_utilization"),
        ("rollout.max_concurrent_requests=8", "renamed rollout.max_num_seqs"),
        (
            "cluster.placement=split",
            "cluster.placement=split was renamed cluster.placement=disaggregated",
        ),
    ],
)
def test_a_former_name_gets_an_error_that_says_the_present_one(override: str, said: str):
    [fault] = faults(None, override)
    assert said in fault
    assert "-> write " in fault


def test_a_former_key_in_a_file_is_named_with_its_line(tmp_path: Path):
    file = recipe(tmp_path, "a", "seed: 1\ntraining:\n  eval_every: 3\n")
    [fault] = faults(file)
    assert f"training.eval_every = 3  ({file}, line 3)" in fault


def test_former_keys_of_an_evaluation_get_the_same_error():
    with pytest.raises(ConfigError, match="tensor_parallel was renamed tensor_parallel_size"):
        read_command(["name", "path", "tensor_parallel=2"])


def test_no_former_name_is_a_present_one():
    for declared in (Config, evaluation_config.EvaluationConfig):
        keys = keys_of(declared)
        assert not {key.rules.formerly for key in keys.values()} & set(keys)
        for key in keys.values():
            assert not set(key.rules.former_values) & set(key.rules.one_of or ())
            assert set(key.rules.former_values.values()) <= set(key.rules.one_of or ())


# ---------------------------------------------------------------- what cannot be combined

DPO = ["optimization.loss=dpo", "optimization.kl_coef=0.1"]


@pytest.mark.parametrize(
    ("overrides", "keys", "constraint"),
    [
        (
            ["optimization.estimator=grpo", "optimization.discount=0.9"],
            ["optimization.discount = 0.9", "optimization.estimator = grpo"],
            "it has no discount",
        ),
        (
            ["optimization.group_by=[question_id]"],
            ["optimization.group_by = [question_id]", "optimization.estimator = reinforce_pp"],
            "does not compare samples by groups",
        ),
        (
            ["optimization.estimator=dr_grpo", "optimization.loss_aggregation=token_mean"],
            ["optimization.loss_aggregation = token_mean", "optimization.estimator = dr_grpo"],
            "is defined with the loss aggregation constant_length",
        ),
        (
            ["optimization.rollout_correction=tis", "optimization.old_logprobs=rollout"],
            ["optimization.rollout_correction = tis", "optimization.old_logprobs = rollout"],
            "leave nothing to correct",
        ),
        (
            ["optimization.rollout_ratio_bounds=[0.5,2.0]"],
            ["optimization.rollout_ratio_bounds", "optimization.rollout_correction = none"],
            "nothing reads its bounds",
        ),
        (
            ["optimization.overlong_buffer_tokens=4097"],
            ["optimization.overlong_buffer_tokens = 4097", "rollout.max_response_tokens = 4096"],
            "there are only 4096",
        ),
        (
            ["rollout.min_response_tokens=9", "rollout.max_response_tokens=8"],
            ["rollout.min_response_tokens = 9", "rollout.max_response_tokens = 8"],
            "cannot be longer than the longest",
        ),
        (
            ["optimization.loss=dpo"],
            ["optimization.loss = dpo", "optimization.kl_coef = 0.0"],
            "by a weight above 0",
        ),
        (
            [*DPO, "interaction.prompt_reuse=1"],
            ["optimization.loss = dpo", "interaction.prompt_reuse = 1"],
            "there is only one",
        ),
        *(
            ([*DPO, f"optimization.{key}={value}"], ["loss = dpo", f"{key} = "], "does not read")
            for key, value in (
                ("estimator", "grpo"),
                ("discount", 0.9),
                ("clip_epsilon_high", 0.3),
                ("dual_clip", 3),
                ("loss_aggregation", "token_mean"),
                ("old_logprobs", "rollout"),
                ("rollout_correction", "tis"),
            )
        ),
        (
            ["policy.attn_implementation=flash_attention_2", "policy.dtype=float32"],
            ["policy.attn_implementation", "policy.dtype = float32"],
            "16 bits only",
        ),
        (
            ["policy.attn_implementation=flash_attention_2", "cluster.device=cpu"],
            ["policy.attn_implementation", "cluster.device = cpu"],
            "GPUs only",
        ),
        (
            ["optimization.final_lr_ratio=0.1"],
            ["optimization.final_lr_ratio = 0.1", "optimization.lr_schedule = constant"],
            "falls to nothing",
        ),
        (
            ["cluster.policies_per_gpu=2"],
            ["rollout.gpu_memory_utilization = 0.6", "cluster.policies_per_gpu = 2"],
            "of 2 policies on a GPU would fill 120% of it",
        ),
    ],
)
def test_what_cannot_be_combined_is_refused_with_the_reason(
    overrides: list[str], keys: list[str], constraint: str
):
    [fault] = faults(None, *overrides)
    assert [key for key in keys if key not in fault] == []
    assert constraint in fault
    assert "\n   -> " in fault


@pytest.mark.parametrize(
    "overrides",
    [
        ["optimization.estimator=reinforce_pp", "optimization.discount=0.9"],
        ["optimization.estimator=dr_grpo", "optimization.loss_aggregation=constant_length"],
        ["optimization.estimator=rloo", "optimization.loss_aggregation=constant_length"],
        DPO,
        ["optimization.rollout_correction=icepop", "optimization.rollout_ratio_bounds=[1,1]"],
        ["optimization.overlong_buffer_tokens=4096", "rollout.min_response_tokens=4096"],
        ["optimization.final_lr_ratio=0.1", "optimization.lr_schedule=linear"],
        ["policy.attn_implementation=flash_attention_2"],
        ["cluster.policies_per_gpu=2", "rollout.gpu_memory_utilization=0.5"],
        ["cluster.policies_per_gpu=2", "cluster.device=cpu"],
        ["policy.zero_stage=0"],  # on GPUs the preflight refuses it, where they are shared
    ],
)
def test_what_can_be_combined_is_accepted(overrides: list[str]):
    changed = changed_keys(load_config(None, []), load_config(None, overrides))
    assert changed.keys() <= {override.partition("=")[0] for override in overrides}


# ---------------------------------------------------------------- schemas


@pytest.mark.parametrize("module", [schema, evaluation_config], ids=lambda module: module.__name__)
def test_every_key_says_what_it_is_for(module):
    undocumented = []
    for section in ast.parse(Path(module.__file__).read_text()).body:
        if not isinstance(section, ast.ClassDef):
            continue
        for statement, following in zip(section.body, [*section.body[1:], None], strict=True):
            if not isinstance(statement, ast.AnnAssign) or "key(" not in ast.unparse(statement):
                continue
            if not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)):
                undocumented.append(f"{section.name}.{ast.unparse(statement.target)}")
    assert undocumented == []


def test_an_example_fits_its_key():
    for schema_class in (Config, evaluation_config.EvaluationConfig):
        for name, key in keys_of(schema_class).items():
            if key.rules.example is not None:
                loaded = load(schema_class, None, [f"{name}={key.rules.example}"])
                assert changed_keys(schema_class(), loaded).keys() <= {name}
