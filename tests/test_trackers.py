"""What trackers get of a run: every row, figures, and discussions."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import matplotlib
import psutil
import pytest
from matplotlib.figure import Figure
from page_runs import discussion
from small_runs import REPOSITORY

from comas.config import ConfigError
from comas.config.schema import Config
from comas.preflight.configuration import load_config
from comas.run import RunDirectory
from comas.run.directory import BEFORE_ALL
from comas.run.records import discussion_record
from comas.run.trackers import Findings, messages_of
from comas.utils.files import FileError
from comas.utils.processes import name as process_name


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(None, [f"saves={tmp_path / 'saves'}"])


def test_trackers_are_only_imported_when_asked_for(config: Config):
    code = """
import sys
from comas.config import Config, load
from comas.run import RunDirectory
with RunDirectory.create(load(Config, None, ["saves=" + sys.argv[1]])) as run:
    run.log_metrics(1, {"a": 1})
print({"wandb", "tensorboard"} & set(sys.modules))
"""
    command = [sys.executable, "-c", code, config.saves]
    said = subprocess.check_output(command, text=True, cwd=REPOSITORY)
    assert said.splitlines()[-1] == "set()"


def test_tensorboard_gets_every_step_once_also_after_a_recovery_and_a_resume(config: Config):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def scalars() -> list[tuple[int, float]]:
        events = EventAccumulator(str(run.path / "tensorboard")).Reload()
        assert events.Tags()["scalars"] == ["a/b"]
        return [(event.step, event.value) for event in events.Scalars("a/b")]

    config.logging.tensorboard = True
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


def findings() -> Findings:
    figure = Figure()
    figure.subplots().plot([1, 2], [3, 4])
    turns = [("d", "r0.s0", 1, "a | b\n`c`"), ("d", "r0.s0.e0", None, "Right.")]
    return Findings(3, {"Reward": figure}, ("discussion", "turn", "agent", "response"), turns)


def test_tensorboard_gets_the_figures_and_a_table_of_discussions(config: Config):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config.logging.tensorboard = True
    with RunDirectory.create(config) as run:
        run.log_metrics(3, {"a/b": 0.5})
        run.log_findings(findings())
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    [image] = events.Images("Reward")
    assert (image.step, image.encoded_image_string[:4]) == (3, b"\x89PNG")
    [text] = events.Tensors("discussions/text_summary")
    assert text.tensor_proto.string_val[0].decode().splitlines() == [
        "| discussion | turn | agent | response |",
        "| --- | --- | --- | --- |",
        "| `d` | `r0.s0` | 1 | `a \\| b 'c'` |",
        "| `d` | `r0.s0.e0` |  | `Right.` |",
    ]


def children() -> set[str]:
    return {process_name(child) for child in psutil.Process().children()}


@pytest.mark.stack
def test_wandb_writes_offline_into_the_run_directory_and_ends_with_the_run(
    config: Config, monkeypatch: pytest.MonkeyPatch
):
    # As in a run that has drawn its figures without it.
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    monkeypatch.delattr(matplotlib, "pyplot", raising=False)
    config.logging.wandb = "offline"
    with RunDirectory.create(config) as run:
        run.log_metrics(1, {"a/b": 0.5, "none": None})
        run.log_findings(findings())
        assert "wandb-core" in children()
    # Else wandb asks it to end when Python exits, and says at length that it is gone.
    assert "wandb-core" not in children()
    [table] = (run.path / "wandb").glob("offline-run-*/files/media/table/discussions_*.table.json")
    assert json.loads(table.read_text()) == {
        "columns": ["discussion", "turn", "agent", "response"],
        "data": [["d", "r0.s0", 1, "a | b\n`c`"], ["d", "r0.s0.e0", None, "Right."]],
    }
    assert list((run.path / "wandb").glob("offline-run-*/files/media/images/Reward_*.png"))
    [logged] = (run.path / "wandb").glob("offline-run-*/*.wandb")
    assert run.path.name in logged.name
    assert b"a/b" in logged.read_bytes()


class FakeTrackio:
    """Trackio's documented functions as far as a run calls them (version 0.43)."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.is_finished = False

    def init(self, **asked: Any) -> FakeTrackio:
        self.asked = asked
        return self

    def log(self, values: dict[str, Any], step: int) -> None:
        self.logged.append((step, values))

    def finish(self) -> None:
        self.is_finished = True

    def Trace(self, *, messages: list[Any], metadata: dict[str, Any]) -> Any:  # noqa: N802
        return messages, metadata

    def Image(self, pixels: Any) -> Any:  # noqa: N802
        return pixels.shape, str(pixels.dtype)


def test_trackio_gets_every_row_the_discussions_as_traces_and_the_figures(
    config: Config, monkeypatch: pytest.MonkeyPatch
):
    trackio = FakeTrackio()
    monkeypatch.setitem(sys.modules, "trackio", trackio)
    config.logging.trackio = True
    with RunDirectory.create(config) as run:
        run.log_metrics(0, {"a/b": 0.5, "none": None})
        run.save_discussions(
            1, [discussion(1)] * 9, verdicts={("step1/math/17/copy0", "r0.s0"): "correct"}
        )
        run.log_metrics(1, {"a/b": 1.0})
        run.log_findings(findings())
    assert trackio.asked["name"] == run.path.name
    assert (trackio.asked["project"], trackio.asked["resume"]) == ("comas", "allow")
    assert trackio.asked["config"]["seed"] == 0
    first, second, third = trackio.logged
    assert first == (0, {"a/b": 0.5})
    assert (second[0], second[1]["a/b"], len(second[1]["discussions"])) == (1, 1.0, 8)
    messages, metadata = second[1]["discussions"][0]
    assert [message["content"] for message in messages] == [
        "What is 48 + 23 ?",
        "[solution r0.s0, agent 0, correct, reward 1.0]\n71",
        "[evaluation r0.s0.e0, agent 1, reward 0.0]\nRight.",
        "[scoring r0.s0.e0.t0, agent 0, reward 0.0]\n<score>3</score>",
    ]
    assert [message["role"] for message in messages] == ["user", *["assistant"] * 3]
    assert (metadata["num_correct"], metadata["num_solutions"]) == (1, 1)
    assert metadata["domain"] == "math"
    assert third == (3, {"Reward": ((480, 640, 3), "uint8")})
    assert trackio.is_finished


def test_a_trace_has_what_was_thought():
    item = discussion(1)
    solution, *others = item.discussion.turns
    thought = replace(solution.generation, thinking_text="<think>8+3</think>")
    turns = (replace(solution, generation=thought), *others)
    item = replace(item, discussion=replace(item.discussion, turns=turns))
    _, first, *_ = messages_of(discussion_record(item, verdicts={}))
    assert first["content"] == (
        f"[solution r0.s0, agent 0, reward {item.rewards[0]}]\n<think>8+3</think>71"
    )


def test_trackio_that_is_not_installed_is_a_fault_before_the_run(config: Config, tmp_path: Path):
    if find_spec("trackio") is not None:
        pytest.skip("it is installed here")
    with pytest.raises(ConfigError, match=r"Trackio is not installed[\s\S]*pip install -U trackio"):
        load_config(None, ["logging.trackio=true"])
    config.logging.trackio = True
    with pytest.raises(FileError, match=r"No module named 'trackio'\. Install it"):
        RunDirectory.create(config)
