"""What a dry run says: placement, tokens, time, and that nothing is made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_runs import FAMILIES, REPOSITORY, record, write_records
from tiny_models import save_tiny_model

from comas.__main__ import main
from comas.config import config_as_yaml
from comas.config.schema import Config
from comas.preflight.configuration import load_config
from comas.preflight.dry_run import (
    MeasuredRun,
    describe_placement,
    describe_time,
    describe_tokens,
    earlier_run,
)
from comas.preflight.needs import faults_of, table
from comas.preflight.sizes import derive_sizes
from comas.preflight.survey import Survey
from comas.utils.terminal import EXIT_FAULT


def paper() -> Config:
    return load_config(REPOSITORY / "configs/comas.yaml", [])


def test_placement_names_every_slot():
    config = paper()
    config.society.num_agents = 2
    assert describe_placement(config, device="cuda") == [
        "placement: colocated; the GPUs of a group are on one node",
        "  GPU 0 (group 0)  policy 0 (agent 0): rollout engine 0, rank 0",
        "  GPU 1 (group 0)  policy 0 (agent 0): rollout engine 1, rank 1",
        "  GPU 2 (group 1)  policy 1 (agent 1): rollout engine 0, rank 0",
        "  GPU 3 (group 1)  policy 1 (agent 1): rollout engine 1, rank 1",
    ]
    assert describe_placement(config, device="cpu")[1:] == [
        "  CPU  policy 0 (agent 0): rollout engine 0, rollout engine 1, rank 0, rank 1",
        "  CPU  policy 1 (agent 1): rollout engine 0, rollout engine 1, rank 0, rank 1",
    ]


def test_placement_names_a_sharded_engine_on_each_of_its_gpus():
    config = paper()
    config.society.num_agents = 1
    config.rollout.engines_per_policy, config.rollout.tensor_parallel = 1, 2
    assert describe_placement(config, device="cuda")[1:] == [
        "  GPU 0 (group 0)  policy 0 (agent 0): rollout engine 0, rank 0",
        "  GPU 1 (group 0)  policy 0 (agent 0): rollout engine 0, rank 1",
    ]


def test_placement_of_a_policy_over_two_nodes_has_a_group_on_each():
    config = paper()
    config.society.num_agents, config.cluster.nodes_per_policy = 1, 2
    assert describe_placement(config, device="cuda")[1:] == [
        "  GPU 0 (group 0)  policy 0 (agent 0): rollout engine 0, rank 0",
        "  GPU 1 (group 1)  policy 0 (agent 0): rollout engine 1, rank 1",
    ]


def test_placement_of_shared_gpus_and_frozen_or_shared_policies():
    config = load_config(REPOSITORY / "configs/quickstart.yaml", ["society.update_every=[0,1]"])
    assert describe_placement(config, device="cuda")[1:] == [
        "  GPU 0 (group 0)  policy 0 (agent 0): rollout engine 0; "
        "policy 1 (agent 1): rollout engine 0, rank 0",
    ]
    config.society.policy_of_agent, config.society.models = [0, 0], ["a"]
    config.society.update_every = [1]
    assert "policy 0 (agents 0, 1)" in describe_placement(config, device="cuda")[1]


def run_with(saves: Path, config: Config, *seconds: float) -> Path:
    """A run's folder with a step of each so many seconds."""
    folder = saves / f"2026010{len(seconds)}-000000-{config.name}"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config_as_yaml(config))
    rows = [{"step": 0, "time/validation_s": 2.0}]
    rows += [
        {"step": n, "time/step_s": s, "tokens/prompt": 6000, "tokens/response": 1800}
        for n, s in enumerate(seconds, start=1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_time_is_that_of_an_earlier_run_with_the_same_settings(tmp_path):
    config = load_config(REPOSITORY / "configs/quickstart.yaml", [f"saves={tmp_path}"])
    sizes = derive_sizes(config, num_questions=2400)
    assert earlier_run(config) is None
    assert describe_time(config, sizes, None).startswith("time: not known: no run")
    run_with(tmp_path, load_config(REPOSITORY / "configs/quickstart.yaml", ["seed=7"]), 1.0, 1.0)
    assert earlier_run(config) is None  # too few steps
    other = load_config(REPOSITORY / "configs/quickstart.yaml", ["rollout.batch_size=4"])
    run_with(tmp_path, other, *[1.0] * 8)
    assert earlier_run(config) is None  # of another size
    folder = run_with(
        tmp_path,
        load_config(REPOSITORY / "configs/quickstart.yaml", ["seed=7", "training.num_steps=5"]),
        *(9.0, 2.0, 3.0, 4.0),
    )
    measured = earlier_run(config)
    # The first step warms up; 60 steps of 3 s and 7 validations of 2 s.
    assert measured == MeasuredRun(folder, 3.0, 2.0, 6000, 1800)
    assert measured.seconds(sizes) == 60 * 3 + 7 * 2
    assert "time: about 3 min once the engines are up" in describe_time(config, sizes, measured)
    assert "about 6,000 of prompts" in describe_tokens(config, sizes, measured)
    assert "288 prompts of at most 512 and responses of at most 48" in describe_tokens(
        config, sizes, None
    )


@pytest.mark.parametrize(
    ("told", "instead"),
    [
        ('"step": 3', '"step": 3x'),  # a damaged line
        ('"tokens/prompt": 6000, ', ""),  # as an older version wrote it
        ('"tokens/prompt": 6000', '"tokens/prompt": null'),
        ('"time/validation_s": 2.0', '"time/validation_s": null'),
    ],
)
def test_a_run_whose_metrics_do_not_tell_the_time_is_passed_over(tmp_path, told, instead):
    config = load_config(REPOSITORY / "configs/quickstart.yaml", [f"saves={tmp_path}"])
    whole = run_with(tmp_path, config, *[1.0] * 4)
    newer = run_with(tmp_path, config, *[2.0] * 5)
    measured = earlier_run(config)
    assert measured is not None and measured.folder == newer
    metrics = newer / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace(told, instead))
    assert earlier_run(config) == MeasuredRun(whole, 1.0, 2.0, 6000, 1800)


def test_a_run_whose_metrics_cannot_be_read_is_passed_over(tmp_path):
    config = load_config(REPOSITORY / "configs/quickstart.yaml", [f"saves={tmp_path}"])
    metrics = run_with(tmp_path, config, *[1.0] * 4) / "metrics.jsonl"
    metrics.unlink()
    metrics.mkdir()
    assert earlier_run(config) is None


def test_a_dry_run_says_everything_and_makes_nothing(tmp_path, caplog):
    model = save_tiny_model(tmp_path / FAMILIES[0], FAMILIES[0])
    questions = write_records(tmp_path / "questions.jsonl", [record(i) for i in range(5)])
    held_out = write_records(tmp_path / "held_out.jsonl", [record(i) for i in range(5, 8)])
    arguments = [
        "--dry-run",
        str(REPOSITORY / "configs/quickstart.yaml"),
        f"saves={tmp_path / 'saves'}",
        f"society.models=[{model}]",
        f"data.train={questions}",
        f"data.validation={held_out}",
        "rollout.batch_size=2",
        "cluster.device=cpu",
    ]
    assert main(arguments) == 0
    said = [
        "needed",
        "placement: on the cores",
        "a step: 2 questions x 1 copies",
        "time: not known",
    ]
    assert all(words in caplog.text for words in said)
    assert "dry run: no faults, no doubts; nothing was started or written" in caplog.text
    caplog.clear()
    faulty = ["data.validation=nowhere.jsonl", "rollout.batch_size=6"]
    faulty += ["rollout.max_response_tokens=100000", "optimization.estimator=at_grpo"]
    assert main([*arguments, *faulty]) == EXIT_FAULT
    assert "dry run: 4 faults, no doubts" in caplog.text
    caplog.clear()
    assert main([*arguments, f"data.validation={questions}"]) == 0
    assert "doubt: data.validation: 5 of 5 questions are among those of data.train" in caplog.text
    assert "dry run: no faults, 1 doubt;" in caplog.text
    assert not (tmp_path / "saves").exists()


def test_a_society_that_is_still_to_be_built_is_not_built_by_a_dry_run(tmp_path, caplog):
    config = load_config(REPOSITORY / "configs/quickstart.yaml", [f"saves={tmp_path}"])
    found = Survey(config)
    assert not found.is_built and faults_of(found.needs) == []
    assert "built at the start" in "\n".join(table(found.needs))
    config.data.validation = config.data.train
    [doubt] = [need.doubt for need in Survey(config).needs if need.doubt is not None]
    assert "2400 of 2400 questions are among those of data.train" in doubt
    assert found.sizes is not None and found.sizes.num_questions == 2400
    assert not list(tmp_path.iterdir())
    typo = load_config(
        REPOSITORY / "configs/quickstart.yaml",
        [f"saves={tmp_path}", "society.models=[quickstart/models/gpt]"],
    )
    [fault] = faults_of(Survey(typo).needs)
    assert "choose one of quickstart/models/qwen2, quickstart/models/llama" in fault
