"""The Ray that a run starts, lost engines and a lost Ray: detection, restarts, and giving up."""

import errno
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from programs import run_to_end
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError, RayTaskError
from scripted_agents import ScriptedAgents
from small_runs import QUICKSTART, rows_of, untimed
from tables import case_file, cases

from comas import train as driver
from comas.__main__ import exit_status
from comas.engines.cluster import supervision
from comas.engines.cluster.launch import MARK, Launch
from comas.engines.cluster.supervision import EngineError, LostEngineError, wait_for_all
from comas.preflight.configuration import load_config
from comas.preflight.preparation import prepare
from comas.run import RunDirectory
from comas.utils.files import FileError
from comas.utils.processes import is_alive
from comas.utils.temporary import temporary_folder


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

    def wait(self, calls: Sequence[str], *, num_returns: int, timeout: float):
        first = min((self.done_at.get(call, 1e9) for call in calls), default=1e9)
        if first > self.now:
            self.now = min(self.now + timeout, max(first, self.now)) + self.frozen_for
            self.frozen_for = 0.0
        return [call for call in calls if self.done_at.get(call, 1e9) <= self.now][:num_returns], []


def test_whoever_does_not_answer_within_the_limit_is_lost(monkeypatch):
    scripted = ScriptedRay(monkeypatch)
    scripted.done_at = {"a": 1.0}
    with pytest.raises(LostEngineError, match=r"while updating within 9 s from: rank 1\."):
        wait_for_all({"rank 0": "a", "rank 1": "b"}, doing="updating", timeout_s=9)
    assert scripted.now == pytest.approx(9, abs=1)


def test_what_this_process_was_frozen_for_is_nobody_s_time(monkeypatch):
    scripted = ScriptedRay(monkeypatch)
    scripted.done_at, scripted.frozen_for = {"a": 1008.0, "b": 1001.0}, 1000.0
    calls = {"rank 0": "a", "rank 1": "b"}
    assert wait_for_all(calls, doing="updating", timeout_s=12) == ["result of a", "result of b"]


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
    raised = RayTaskError("update", "traceback", cause)
    error = supervision.engine_error("rank 0", "updating", raised)
    assert isinstance(error, LostEngineError) == is_lost
    assert str(error).startswith("rank 0 failed while updating: ")


def test_the_death_of_an_actor_has_its_cause():
    context = ActorDiedErrorContext(error_message="low memory: 62 of 64 GB", actor_id=b"1" * 16)
    assert str(supervision.engine_error("rank 0", "updating", ActorDiedError(context))).endswith(
        "The actor died unexpectedly before finishing this task. low memory: 62 of 64 GB"
    )


def test_a_ray_whose_raylet_is_gone_is_lost():
    with subprocess.Popen(["sleep", "60"]) as process:
        launch = Launch.__new__(Launch)
        launch._ray_processes = [psutil.Process(), psutil.Process(process.pid)]
        launch.check_ray()
        process.kill()
        process.wait()
        with pytest.raises(LostEngineError, match=f"process {process.pid} is gone"):
            launch.check_ray()


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
)
def test_the_exit_status_tells_whose_fault_it_was(error, status):
    assert exit_status(error) == status


def train(saves, monkeypatch, name: str, lost_in: list[int]) -> tuple[Path, list[ScriptedAgents]]:
    """A run that is lost in the updates of the steps ``lost_in``, and its societies."""
    societies = []

    def lost(step: int) -> LostEngineError:
        return LostEngineError(f"rank 0 of policy 0 failed while updating in step {step}")

    def lost_agents(prepared: Any) -> ScriptedAgents:
        societies.append(ScriptedAgents(lost_in, lost))
        return societies[-1]

    steps = ["training.num_steps=6", "training.save_every=2", "rollout.batch_size=2"]
    settings = [f"name={name}", f"saves={saves}", "cluster.device=cpu", *steps]
    config = load_config(QUICKSTART, settings)
    with monkeypatch.context() as patch, RunDirectory.create(config) as run:
        patch.setattr(driver, "agents_of", lost_agents)
        driver.train(prepare(config), run)
    return run.path, societies


@pytest.mark.stack
def test_a_society_that_is_lost_goes_on_from_its_newest_checkpoint(saves, monkeypatch):
    undisturbed, [_] = train(saves, monkeypatch, "undisturbed", [])
    disturbed, societies = train(saves, monkeypatch, "disturbed", [1, 4, 5])
    assert [society.loaded for society in societies] == [[], [], [2], [4]]
    assert untimed(disturbed) == untimed(undisturbed)
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
    said = rf"failed while updating in step {step}\n.*it recovered 3 times without a new step"
    with pytest.raises(LostEngineError, match=said):
        train(saves, monkeypatch, f"given-up-{step}", [step] * 4)


@pytest.mark.stack
def test_workers_start_from_a_path_with_spaces_and_a_sigterm_as_they_end_is_handled(tmp_path):
    environment = Path(sys.prefix)
    moved = tmp_path / "my $HOME work"
    (moved / "bin").mkdir(parents=True)
    (moved / "pyvenv.cfg").write_text((environment / "pyvenv.cfg").read_text())
    (moved / "lib").symlink_to(environment / "lib")
    (moved / "bin/python").symlink_to(Path(sys.executable).resolve())
    run = run_to_end(moved / "bin/python", "-c", case_file("recovery")["TERMINATED_WHILE_LEAVING"])
    assert (run.returncode, run.stdout) == (0, "True ['SIGTERM']\n"), run.stderr


@pytest.mark.stack
def test_a_ray_of_ours_is_closed_to_others_and_leaves_nothing_even_of_what_is_frozen():
    config = load_config(None, ["cluster.object_store_mib=80", "cluster.device=cpu"])
    with temporary_folder() as folder:
        started = Launch(config, models=["some/model"], device="cpu")
        try:
            pid = ray.get(ray.remote(lambda: os.getpid()).options(num_cpus=0).remote())
            frozen = psutil.Process(pid)
            address = ray.get_runtime_context().gcs_address
            known = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
            known["RAY_NUM_REDIS_GET_RETRIES"] = "1"  # a second each
            command = [sys.executable, "-c", case_file("recovery")["VISITOR"], address]
            visitor = run_to_end(*command, env=known, timeout=60)
            assert "refused: ConnectionError" in visitor.stdout
            assert "InvalidAuthToken" in visitor.stderr
            assert (folder / "ray").is_dir()
            frozen.suspend()
        finally:
            started.stop()
        environments = [p.info["environ"] or {} for p in psutil.process_iter(["environ"])]
        assert [e for e in environments if e.get(MARK) == started._mark] == []
        assert not is_alive(frozen)  # though its parent may not have waited for it
    assert not folder.exists()
    assert MARK not in os.environ
