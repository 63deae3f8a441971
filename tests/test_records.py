"""Records of tokens, and trackers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from page_runs import discussion
from small_runs import reopened

from comas.config.schema import Config
from comas.preflight.configuration import load_config
from comas.run import RunDirectory
from comas.run.directory import BEFORE_ALL
from comas.run.records import compressed, read_tokens, token_records
from comas.utils.processes import name as process_name


def test_a_record_holds_the_tokens_that_were_sampled_and_four_digits_of_their_numbers():
    said = discussion(1).discussion
    solution, evaluation, scoring = said.turns
    given = replace(scoring, generation=replace(scoring.generation, finish_reason="given"))
    said = replace(said, turns=(solution, evaluation, given))  # not sampled
    key = (said.discussion_id, "r0.s0")
    first, second = token_records([said], {key: (1.23456,)})
    assert first == {
        "discussion_id": "step1/math/17/copy0",
        "turn_id": "r0.s0",
        "prompt_token_ids": [0, 1, 2, 3, 4],
        "response_token_ids": [6],
        "logprobs": [-0.25],
        "advantages": [1.235],
    }
    assert "advantages" not in second


def test_advantages_of_an_earlier_step_join_the_tokens_of_that_step(tmp_path):
    """With an update every second step, those of step 1 come with step 2."""
    early, late = discussion(1).discussion, discussion(2).discussion
    gains = {(early.discussion_id, "r0.s0"): (0.5,), (late.discussion_id, "r0.s0"): (-0.5,)}
    (tmp_path / "step_0001.jsonl.gz").write_bytes(compressed(token_records([early], {})))
    (tmp_path / "step_0002.jsonl.gz").write_bytes(compressed(token_records([late], gains)))
    records = read_tokens(tmp_path)
    assert {key: records[key]["advantages"] for key in gains} == {
        (early.discussion_id, "r0.s0"): [0.5],
        (late.discussion_id, "r0.s0"): [-0.5],
    }
    assert records[early.discussion_id, "r0.s0"]["response_token_ids"] == [6]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(None, [f"saves={tmp_path / 'saves'}"])


def tensorboard_of(run: RunDirectory) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(run.path / "tensorboard")).Reload()


def test_tensorboard_gets_every_step_once_also_after_a_recovery_and_a_resume(config):
    def scalars() -> list[tuple[int, float]]:
        events = tensorboard_of(run)
        assert events.Tags()["scalars"] == ["a/b"]
        return [(event.step, event.value) for event in events.Scalars("a/b")]

    config.logging.trackers = ["tensorboard"]
    with RunDirectory.create(config) as run:
        for step in (0, 1):
            run.log_metrics(step, {"a/b": step, "none": None})
        run.go_back_to(BEFORE_ALL)  # no checkpoint yet: from the beginning
        for step in (0, 1, 2, 3):
            run.log_metrics(step, {"a/b": 10 * step})
        run.go_back_to(1)
        run.log_metrics(2, {"a/b": 200})
        assert scalars() == [(0, 0), (1, 10), (2, 200)]  # also while the run goes on
    with reopened(run.path) as again:
        again.go_back_to(1)
        again.log_metrics(2, {"a/b": 20})
    assert scalars() == [(0, 0), (1, 10), (2, 20)]


def children() -> set[str]:
    return {process_name(child) for child in psutil.Process().children()}


@pytest.mark.stack
def test_wandb_writes_offline_into_the_run_directory_and_ends_with_the_run(config, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    config.logging.trackers = ["wandb"]
    with RunDirectory.create(config) as run:
        run.save_discussions(1, [discussion(1)])
        run.log_metrics(1, {"a/b": 0.5, "none": None})
        assert "wandb-core" in children()
    # Otherwise wandb warns at length at exit.
    assert "wandb-core" not in children()
    [logged] = (run.path / "wandb").glob("offline-run-*/*.wandb")
    assert run.path.name in logged.name
    assert b"a/b" in logged.read_bytes()
