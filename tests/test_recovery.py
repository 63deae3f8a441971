"""Lost engines and a lost Ray: detection, restarts, and giving up."""

import errno
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from scripted_agents import ScriptedAgents
from small_runs import QUICKSTART, rows_of
from tables import cases
from waiting import wait_until

from comas import train as driver
from comas.__main__ import exit_status
from comas.engines.cluster import nodes, supervision
from comas.engines.cluster.actors import Engine
from comas.engines.cluster.nodes import RayProcesses
from comas.engines.cluster.supervision import (
    EngineError,
    GivenUpError,
    LostEngineError,
    Recoveries,
    engine_error,
    wait_for_all,
    wait_for_engines,
)
from comas.policy_optimization.update_stats import UpdateStats
from comas.preflight.configuration import load_config
from comas.preflight.preparation import prepare
from comas.run import RunDirectory
from comas.types import TrainingSample
from comas.utils.files import FileError


class ScriptedRay:
    """Replaces ray.wait and the clock: each call is done at a given time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.done_at: dict[str, float] = {}
        self.failed: dict[str, Exception] = {}
        self.frozen_for = 0.0
        monkeypatch.setattr(supervision.ray, "wait", self.wait)
        monkeypatch.setattr(supervision.ray, "get", self.get)
        monkeypatch.setattr(supervision.time, "monotonic", lambda: self.now)

    def get(self, call: str) -> str:
        if call in self.failed:
            raise self.failed[call]
        return f"result of {call}"

    def wait(
        self, calls: Sequence[str], *, num_returns: int, timeout: float
    ) -> tuple[list[str], list[str]]:
        first = min((self.done_at.get(call, 1e9) for call in calls), default=1e9)
        if first > self.now:
            self.now = min(self.now + timeout, max(first, self.now)) + self.frozen_for
            self.frozen_for = 0.0
        ready = [call for call in calls if self.done_at.get(call, 1e9) <= self.now]
        return ready[:num_returns], []


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptedRay:
    return ScriptedRay(monkeypatch)


class Actor:
    """Answers the first ``num_alive`` heartbeats at once, and no others."""

    def __init__(self, scripted: ScriptedRay, name: str, *, num_alive: float) -> None:
        self._scripted = scripted
        self._name = name
        self._num_alive = num_alive
        self.num_asked = 0
        self.heartbeat = SimpleNamespace(remote=self._ask)

    def _ask(self) -> str:
        call = f"heartbeat {self.num_asked} of {self._name}"
        if self.num_asked < self._num_alive:
            self._scripted.done_at[call] = self._scripted.now
        self.num_asked += 1
        return call


def engine(scripted: ScriptedRay, name: str, *, num_alive: float = 1e9) -> Any:
    return Engine(name, (0,), Actor(scripted, name, num_alive=num_alive), None)


def test_whoever_does_not_answer_within_the_limit_is_lost(scripted):
    scripted.done_at = {"a": 1.0}
    with pytest.raises(LostEngineError, match=r"while updating within 9 s from: rank 1\."):
        wait_for_all({"rank 0": "a", "rank 1": "b"}, doing="updating", timeout_s=9)
    assert scripted.now == pytest.approx(9, abs=1)


def test_what_this_process_was_frozen_for_is_nobody_s_time(scripted):
    scripted.done_at, scripted.frozen_for = {"a": 1008.0, "b": 1001.0}, 1000.0
    calls = {"rank 0": "a", "rank 1": "b"}
    assert wait_for_all(calls, doing="updating", timeout_s=12) == ["result of a", "result of b"]


def wait(calls: dict[Any, str], *, watched: Sequence[Any] = ()) -> list[Any]:
    return wait_for_engines(
        calls,  # type: ignore[arg-type]
        doing="sending",
        timeout_s=1000,
        check=lambda: None,
        watched=watched,
    )


@pytest.mark.parametrize("is_called", [True, False])
def test_an_engine_that_falls_silent_is_lost_long_before_its_call_is_due(
    scripted, monkeypatch, is_called
):
    """It is called itself, or is waited for by another that is called."""
    monkeypatch.setattr(supervision, "HEARTBEAT_TIMEOUT_S", 5)
    alive, silent = engine(scripted, "rank 0"), engine(scripted, "rank 1", num_alive=3)
    called, watched = ([alive, silent], []) if is_called else ([alive], [silent])
    with pytest.raises(LostEngineError, match="rank 1 gave no sign of life for 5 s while sending"):
        wait(dict.fromkeys(called, "never"), watched=watched)
    # Three answers; asked for the fourth after 3 s, silent from 4 to 9.
    assert scripted.now == pytest.approx(9, abs=1)
    assert (alive.actor.num_asked, silent.actor.num_asked) == (10, 4)


def test_an_engine_that_dies_while_another_waits_for_it_is_lost_at_once_and_named(scripted):
    rank, dead = engine(scripted, "rank 0"), engine(scripted, "rollout engine 0")
    scripted.failed = {"heartbeat 2 of rollout engine 0": ActorDiedError()}
    said = "^rollout engine 0 failed while sending: The actor died"
    with pytest.raises(LostEngineError, match=said):
        wait({rank: "never"}, watched=[dead])
    assert dead.actor.num_asked == 3
    # For an engine that is called, the call counts, not the heartbeat.
    scripted.done_at |= {"soon": scripted.now + 8}
    scripted.failed = {f"heartbeat {number} of rank 0": ActorDiedError() for number in range(99)}
    assert wait({rank: "soon"}) == ["result of soon"]


@cases(
    "cause, is_lost",
    (RuntimeError("Connection closed by peer"), True),
    (ActorDiedError(), True),
    (ValueError("no such key"), False),
    (OSError(errno.ENOSPC, "No space left on device"), False),
    (FloatingPointError("weights are not finite"), False),
    (AssertionError(), False),
)
def test_what_would_fail_again_is_no_lost_engine(cause, is_lost):
    error = engine_error("rank 0", "updating", RayTaskError("update", "traceback", cause))
    assert isinstance(error, LostEngineError) == is_lost
    assert str(error).startswith("rank 0 failed while updating: ")


def test_a_run_recovers_as_often_in_a_row_as_the_limit_says():
    recoveries = Recoveries(2)
    lost = LostEngineError("rank 0 died")
    for step in range(1, 4):
        recoveries.count("engine", lost)
        recoveries.count("society", lost)
        assert recoveries.take_metrics(step) == {
            "recovery/engine_restarts": 1,
            "recovery/society_restarts": 1,
        }
    assert set(recoveries.take_metrics(4).values()) == {0}
    recoveries.count("engine", lost)
    recoveries.count("engine", lost)
    recoveries.take_metrics(3)
    recoveries.take_metrics(4)  # repeated from a checkpoint: nothing new
    with pytest.raises(GivenUpError, match=r"(?s)rank 0 died.*recovered 2 times without"):
        recoveries.count("society", lost)


@pytest.mark.stack
def test_a_ray_whose_raylet_is_gone_or_frozen_is_lost(tmp_path, monkeypatch):
    program = shutil.copy("/bin/sleep", tmp_path / "raylet")
    with subprocess.Popen([program, "60"]) as process:
        raylet = psutil.Process(process.pid)
        # Any other process will do.
        watched = RayProcesses([raylet, psutil.Process()])
        watched.check()
        assert watched.are_sound()
        raylet.suspend()
        wait_until(lambda: not watched.are_sound())
        watched.check()  # sees it for the first time
        watched.check()
        with monkeypatch.context() as patch:
            patch.setattr(nodes, "HEARTBEAT_TIMEOUT_S", 0)
            with pytest.raises(LostEngineError, match=f"process {raylet.pid} was frozen"):
                watched.check()
        raylet.resume()
        wait_until(watched.are_sound)
        watched.check()
        raylet.kill()
        raylet.wait()
        with pytest.raises(LostEngineError, match=f"process {raylet.pid} is gone"):
            watched.check()


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@cases(
    "error, status",
    (ValueError("rollout.batch_size: unknown"), 1),
    (FileError("cannot write"), 1),
    (caused(FileError("cannot write"), OSError(errno.EACCES, "Permission denied")), 1),
    (RuntimeError("policy 0 had nothing to learn from"), 3),
    (EngineError("rank 0 failed while updating: FloatingPointError"), 3),
    (caused(FileError("cannot write"), OSError(errno.ENOSPC, "No space left")), 4),
    (OSError(errno.EIO, "Input/output error"), 4),
    (LostEngineError("Ray did not start"), 4),
    (caused(GivenUpError("too often"), LostEngineError("rank 0 died")), 4),
)
def test_the_exit_status_tells_whose_fault_it_was(error, status):
    assert exit_status(error) == status


class LostAgents(ScriptedAgents):
    """A society that is lost in the updates of the steps ``lost_in``."""

    def __init__(self, lost_in: list[int], recoveries: Recoveries) -> None:
        super().__init__(recoveries)
        self._lost_in = lost_in

    def begin_update(
        self, buffers: Mapping[int, Sequence[TrainingSample]], *, step: int
    ) -> Callable[[], dict[int, UpdateStats]]:
        if self._lost_in and self._lost_in[0] == step:
            self._lost_in.pop(0)
            raise LostEngineError(f"rank 0 of policy 0 failed while updating in step {step}")
        return super().begin_update(buffers, step=step)


def train(
    saves: Path, monkeypatch: pytest.MonkeyPatch, name: str, lost_in: list[int]
) -> tuple[Path, list[LostAgents]]:
    societies = []

    def lost_agents(prepared: Any, recoveries: Recoveries) -> LostAgents:
        societies.append(LostAgents(lost_in, recoveries))
        return societies[-1]

    steps = ["training.num_steps=6", "training.save_every=2", "rollout.batch_size=2"]
    settings = [f"name={name}", f"saves={saves}", "cluster.device=cpu", *steps]
    config = load_config(QUICKSTART, settings)
    with monkeypatch.context() as patch, RunDirectory.create(config) as run:
        patch.setattr(driver, "agents_of", lost_agents)
        driver.train(prepare(config), run)
    return run.path, societies


def untimed(run: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows_of(run)]


@pytest.mark.stack
def test_a_society_that_is_lost_goes_on_from_its_newest_checkpoint(saves, monkeypatch):
    undisturbed, [_] = train(saves, monkeypatch, "undisturbed", [])
    disturbed, societies = train(saves, monkeypatch, "disturbed", [1, 4, 5])
    assert [society.loaded for society in societies] == [[], [], [2], [4]]
    expected, found = untimed(undisturbed), untimed(disturbed)
    restarts = [row.pop("recovery/society_restarts", None) for row in found]
    assert restarts == [None, 1, 0, 1, 0, 1, 0]
    assert found == [
        {k: v for k, v in row.items() if k != "recovery/society_restarts"} for row in expected
    ]
    # Step 1 was lost before it was on record; 3 was after the checkpoint of 2, and 4 has its own.
    aside = (disturbed / "dropped").iterdir()
    assert sorted(row["step"] for folder in aside for row in rows_of(folder)) == [0, 3]
    assert not (undisturbed / "dropped").exists()
    for file in (undisturbed / "discussions").iterdir():
        assert (disturbed / "discussions" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.stack
@pytest.mark.parametrize("step", [3, 4])
def test_a_society_that_is_lost_again_at_the_same_step_is_given_up(saves, monkeypatch, step):
    """Step 3 is the first after a checkpoint; before step 4, step 3 is repeated."""
    with pytest.raises(GivenUpError, match=f"failed while updating in step {step}"):
        train(saves, monkeypatch, f"given-up-{step}", [step] * 4)
