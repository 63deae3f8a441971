"""What trackers get of a run: every row, and discussions."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from page_runs import discussion

from comas.config.schema import Config
from comas.preflight.configuration import load_config
from comas.run import RunDirectory
from comas.run.directory import BEFORE_ALL
from comas.run.trackers import TABLE_HEADER
from comas.utils.processes import name as process_name


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
    with RunDirectory.open(load_config(None, [f"resume={run.path}"])) as again:
        again.go_back_to(1)
        again.log_metrics(2, {"a/b": 20})
    assert scalars() == [(0, 0), (1, 10), (2, 20)]


ABOUT = ("step2/math/17/copy0", "What is 48 + 23 ?")
TABLE = [
    [*ABOUT, "r0.s0", "solution", 0, "a | b\n`c`", 1.0, "correct", None],
    [*ABOUT, "r0.s0.e0", "evaluation", 1, "Right.", 0.0, None, None],
    [*ABOUT, "r0.s0.e0.t0", "scoring", 0, "<score>3</score>", 0.0, None, 3],
]


def train(run: RunDirectory) -> None:
    """Leave two steps, the second with a discussion that looks like Markdown."""
    for step in (1, 2):
        item = discussion(step)
        solution, *others = item.discussion.turns
        said = replace(solution.generation, response_text="a | b\n`c`")
        turns = (replace(solution, generation=said), *others)
        item = replace(item, discussion=replace(item.discussion, turns=turns))
        name = item.discussion.discussion_id
        run.save_discussions(step, [item], verdicts={(name, "r0.s0"): "correct"})
        run.log_metrics(step, {"a/b": 0.5 * step, "none": None})


def children() -> set[str]:
    return {process_name(child) for child in psutil.Process().children()}


@pytest.mark.stack
def test_wandb_writes_offline_into_the_run_directory_and_ends_with_the_run(config, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    config.logging.trackers = ["wandb"]
    with RunDirectory.create(config) as run:
        train(run)
        assert "wandb-core" in children()
    # Else wandb asks it to end when Python exits, and says at length that it is gone.
    assert "wandb-core" not in children()
    [table] = (run.path / "wandb").glob("offline-run-*/files/media/table/discussions_*.table.json")
    assert json.loads(table.read_text()) == {"columns": list(TABLE_HEADER), "data": TABLE}
    [logged] = (run.path / "wandb").glob("offline-run-*/*.wandb")
    assert run.path.name in logged.name
    assert b"a/b" in logged.read_bytes()
