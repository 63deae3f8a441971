"""Everything in a run directory is complete or absent; records of tokens, and trackers."""

import json
import logging
import math
import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from page_runs import discussion
from small_runs import REPOSITORY, reopened, rows_of, save_checkpoint
from tables import case_file, cases

from comas.config.schema import Config
from comas.preflight.configuration import load_config
from comas.run import RunDirectory
from comas.run.directory import BEFORE_ALL
from comas.run.provenance import git_state
from comas.run.records import compressed, read_tokens, token_records
from comas.run.seals import user_key
from comas.utils.files import FileError
from comas.utils.processes import name as process_name


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(None, [f"saves={tmp_path}/saves", "name=test", "cluster.cpu_threads=1"])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_run_has_a_folder_for_this_user_alone_that_latest_points_at(config, caplog):
    before = os.umask(0)
    with RunDirectory.create(config) as first, RunDirectory.create(config) as second:
        os.umask(before)
        assert first.path.stat().st_mode & 0o777 == 0o700
        assert first.path != second.path
        assert first.path.parent == second.path.parent == Path(config.saves)
        assert (Path(config.saves) / "latest").readlink() == Path(second.path.name)
        assert load_config(first.path / "config.yaml", []) == config
    date, time, name = first.path.name.split("-", 2)
    assert (len(date), len(time), name) == (8, 6, "test")
    [start] = json.loads((first.path / "versions.json").read_text())
    assert start["python"].startswith("3.") and "pydantic" in start["packages"]
    assert start["command"] == sys.argv
    (Path(config.saves) / "latest").unlink()
    (Path(config.saves) / "latest").mkdir()  # as a copy that follows links has it
    with RunDirectory.create(config):
        assert "latest does not lead to this run: [Errno 21]" in caplog.text
    assert not list(Path(config.saves).glob(".partial*"))


def test_the_git_state_tells_a_checkout_from_an_installed_package(tmp_path):
    def git(*words: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", tmp_path, *name, *words], check=True)

    (tmp_path / "comas").mkdir()
    (tmp_path / "comas" / "a.py").write_text("")
    git("init", "-q")
    assert git_state(tmp_path) is None  # a repository, but not of this package
    git("add", ".")
    git("commit", "-q", "-m", "y")
    clean = git_state(tmp_path)
    assert clean is not None
    assert (len(clean["commit"]), clean["dirty"]) == (40, False)
    (tmp_path / "comas" / "a.py").write_text("changed")
    assert git_state(tmp_path) == {**clean, "dirty": True}


def test_the_log_takes_what_is_said_in_a_run(config):
    with RunDirectory.create(config) as run:
        logging.getLogger("comas.somewhere").warning("inside")
    logging.getLogger("comas.somewhere").warning("outside")
    text = (run.path / "train.log").read_text()
    assert "WARNING comas.somewhere: inside" in text and "outside" not in text


def test_a_step_is_one_line_on_the_disk_at_once_and_what_is_not_finite_is_null(config, caplog):
    with RunDirectory.create(config) as run:
        run.log_metrics(0, {"agent_0/reward/solution": None, "tokens/prompt": 12})
        run.log_metrics(3, {"a": math.nan, "b": -math.inf, "c": 1.0})
        assert rows_of(run.path) == [
            {"step": 0, "agent_0/reward/solution": None, "tokens/prompt": 12},
            {"step": 3, "a": None, "b": None, "c": 1.0},
        ]
    assert "step 3: not finite, written as null: a, b" in caplog.text


def test_the_newest_checkpoints_are_kept_and_the_latest_found(config):
    config.training.keep_checkpoints = 2
    with RunDirectory.create(config) as run:
        assert run.latest_checkpoint() is None
        for step in (10, 20, 9990, 10000):  # 10000 sorts before 9990 as text
            save_checkpoint(run, step)
        assert names(run.path / "checkpoints") == ["step_10000", "step_9990"]
        newest = run.path / "checkpoints" / "step_10000"
        assert run.latest_checkpoint() == (10000, newest)
        with run.checkpoint_folder(10000) as folder:  # of the same step: it is replaced
            (folder / "second").write_text("")
        assert names(newest) == ["seal.json", "second"]


def test_the_best_checkpoint_is_among_those_there_are(config):
    """A resume may ask for the best after the best validation, whose checkpoint is gone."""
    config.training.keep_best, config.training.keep_checkpoints = "validation/accuracy", 1
    with RunDirectory.create(config) as run:
        for step, accuracy in ((5, 0.9), (15, 0.6), (20, 0.8), (25, 0.7)):
            run.log_metrics(step, {"validation/accuracy": accuracy})
            if step > 5:
                save_checkpoint(run, step)
        assert run.best_checkpoint()[0] == 20
        run.log_metrics(30, {"validation/accuracy": 0.9})  # killed before its checkpoint
        assert (run.best_step(), run.best_checkpoint()[0]) == (30, 20)


@pytest.mark.parametrize("writes", ["checkpoint_folder", "models_folder"])
def test_a_full_disk_is_told_whatever_a_library_makes_of_it(config, writes):
    with RunDirectory.create(config) as run:
        save_checkpoint(run, 1)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # stands for a full disk
        try:
            told = r"(step_0002|models): File too large \(\d+ MiB and \d+ inodes are free"
            with pytest.raises(FileError, match=told), getattr(run, writes)(2):
                raise RuntimeError("unexpected pos 128 vs 0")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert run.latest_checkpoint() == (1, run.path / "checkpoints/step_0001")
        with pytest.raises(RuntimeError, match="of its own"), getattr(run, writes)(2):
            raise RuntimeError("of its own")


@cases("step, is_finished", ("20\n", True), ("", False), ("x", False))
def test_a_run_is_finished_once_it_has_the_models_of_its_last_step(config, step, is_finished):
    with RunDirectory.create(config) as run:
        assert not run.is_finished(20)
        with run.models_folder(20) as folder:
            (folder / "agent_1").mkdir()
        (run.path / "models/step").write_text(step)
    with reopened(run.path) as run:
        assert (run.is_finished(20), run.is_finished(30)) == (is_finished, False)
        run.go_back_to(20)
        assert (run.path / "models").is_dir() == is_finished
        assert len(list(run.path.glob("dropped/*/models"))) == (not is_finished)


def test_other_settings_need_a_word_and_are_kept_once_the_run_has_loaded(config, caplog):
    with RunDirectory.create(config) as run:
        pass
    changed, said = "training.num_steps=60", r"training.num_steps: null -> 60"
    with pytest.raises(ValueError, match=rf"\({said}\).*resume_changed=true"):
        reopened(run.path, changed)
    with reopened(run.path, changed, "resume_changed=true") as again:
        assert f"continues with other settings or files: {said}" in caplog.text
        # The run may still fail to load.
        assert load_config(again.path / "config.yaml", []).training.num_steps is None
        again.keep_settings({})
    kept = load_config(again.path / "config.yaml", [])
    assert (kept.training.num_steps, kept.resume, kept.resume_changed) == (60, None, False)


@pytest.mark.stack
def test_a_killed_run_frees_its_lock_and_loses_only_what_was_incomplete(config):
    command = [sys.executable, "-c", case_file("run_directory")["DIES"], config.saves]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        with pytest.raises(FileError, match=f"written by process {process.pid}: wait"):
            reopened(path)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert names(path / "checkpoints") == [".partial-step_0020", "step_0010"]
        with reopened(path) as run:  # the forked worker still lives
            assert names(path / "checkpoints") == ["step_0010"]
            run.log_metrics(2, {})
            assert rows_of(path) == [{"step": 1}, {"step": 2}]


def test_the_key_is_made_once_and_the_users_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    key = user_key()
    assert user_key() == key
    path = tmp_path / "state/comas/seal.key"
    assert (path.read_bytes(), len(key)) == (key, 32)
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(path.parent) == ["seal.key"]


def test_a_record_holds_the_tokens_that_were_sampled_and_four_digits_of_their_numbers():
    said = discussion(1).discussion
    solution, evaluation, scoring = said.turns
    given = replace(scoring, generation=replace(scoring.generation, finish_reason="given"))
    said = replace(said, turns=(solution, evaluation, given))  # not sampled
    first, second = token_records([said], {(said.discussion_id, "r0.s0"): (1.23456,)})
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
    gains = {(early.discussion_id, "r0.s0"): (0.5,), (late.discussion_id, "r0.s0"): (math.nan,)}
    (tmp_path / "step_0001.jsonl.gz").write_bytes(compressed(token_records([early], {})))
    (tmp_path / "step_0002.jsonl.gz").write_bytes(compressed(token_records([late], gains)))
    records = read_tokens(tmp_path)
    assert {key: records[key]["advantages"] for key in gains} == {
        (early.discussion_id, "r0.s0"): [0.5],
        (late.discussion_id, "r0.s0"): [None],
    }
    assert records[early.discussion_id, "r0.s0"]["response_token_ids"] == [6]
    for harmed in (compressed([{"a": 1}])[:20], compressed([{"a": 1}])):
        (tmp_path / "step_0002.jsonl.gz").write_bytes(harmed)
        with pytest.raises(FileError, match=r"step_0002.jsonl.gz is damaged: .* Delete it"):
            read_tokens(tmp_path)


def test_tensorboard_gets_every_step_once_also_after_a_recovery_and_a_resume(config):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def scalars() -> list[tuple[int, float]]:
        events = EventAccumulator(str(run.path / "tensorboard")).Reload()
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
