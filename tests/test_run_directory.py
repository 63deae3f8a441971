"""A run directory holds whole things or nothing, whenever its process dies."""

from __future__ import annotations

import json
import logging
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from comas.config import ConfigError
from comas.config.schema import Config
from comas.preflight.configuration import load_config
from comas.run import RunDirectory
from comas.run.checkpoints import look_for_key, steps_in, user_key
from comas.run.directory import read_inputs
from comas.run.provenance import git_state
from comas.types import Discussion, Generation, Question, RewardedDiscussion, Turn
from comas.utils.files import FileError

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(None, [f"saves={tmp_path / 'saves'}", "name=test"])


def resumed(config: Config, path: Path, *overrides: str) -> Config:
    return load_config(None, [f"resume={path}", *overrides])


def rows(run: RunDirectory) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def save_checkpoint(run: RunDirectory, step: int) -> None:
    with run.checkpoint_folder(step) as folder:
        (folder / "policy_0").mkdir()
        (folder / "policy_0" / "weights").write_text(f"of step {step}")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def discussion() -> RewardedDiscussion:
    question = Question("math/17", "math", "What is 48 + 23?")
    said = Generation((5, 8, 2), (7, 9, 1), "Ça fait 71", (-0.1,) * 3, "stop", 3)
    solution = Turn("r0.s0", None, 0, "solution", 1, "Solve it", said)
    evaluation = Turn("r0.s0.e0", "r0.s0", 0, "evaluation", 0, "Judge it", said)
    whole = Discussion("step1/math/17/copy0", question, (solution, evaluation), 2)
    return RewardedDiscussion(whole, (0.5, None))


# ---------------------------------------------------------------- creating


def test_a_new_run_has_a_folder_of_its_own_that_latest_points_at(config: Config):
    with RunDirectory.create(config) as first, RunDirectory.create(config) as second:
        assert first.path != second.path
        assert first.path.parent == second.path.parent == Path(config.saves)
        assert (Path(config.saves) / "latest").readlink() == Path(second.path.name)
    date, time, name = first.path.name.split("-", 2)
    assert len(date) == 8
    assert len(time) == 6
    assert name == "test"


def test_a_new_run_holds_its_resolved_config_and_versions(config: Config):
    with RunDirectory.create(config) as run:
        assert load_config(run.path / "config.yaml", []) == config
        [start] = json.loads((run.path / "versions.json").read_text())
    assert start["python"].startswith("3.")
    assert "omegaconf" in start["packages"]
    assert start["command"] == sys.argv


def test_the_git_state_tells_a_checkout_from_an_installed_package(tmp_path: Path):
    assert git_state(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert git_state(tmp_path) is None  # a repository, but not of this package
    (tmp_path / "comas").mkdir()
    (tmp_path / "comas" / "a.py").write_text("")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "y"], check=True)
    clean = git_state(tmp_path)
    assert clean is not None
    assert (len(clean["commit"]), clean["dirty"]) == (40, False)
    (tmp_path / "results").mkdir()
    (tmp_path / "results/report.md").write_text("written by a run")
    assert git_state(tmp_path) == clean
    (tmp_path / "comas" / "a.py").write_text("changed")
    assert git_state(tmp_path) == {**clean, "dirty": True}


def test_a_saves_folder_that_cannot_be_made_is_a_clear_error(config: Config, tmp_path: Path):
    (tmp_path / "file").write_text("")
    config.saves = str(tmp_path / "file" / "saves")
    with pytest.raises(FileError, match=r"cannot write .*file/saves: Not a directory"):
        RunDirectory.create(config)
    config.saves = str(tmp_path / "other")
    (tmp_path / "other/latest").mkdir(parents=True)
    with pytest.raises(FileError, match="latest: Is a directory"):  # and is not overwritten
        RunDirectory.create(config)


def test_what_is_logged_goes_to_train_log_while_the_run_is_open(config: Config):
    with RunDirectory.create(config) as run:
        logging.getLogger("comas.somewhere").warning("inside")
    logging.getLogger("comas.somewhere").warning("outside")
    text = (run.path / "train.log").read_text()
    assert "WARNING comas.somewhere: inside" in text
    assert "outside" not in text


# ---------------------------------------------------------------- metrics


def test_a_step_is_one_line_on_the_disk_at_once(config: Config):
    with RunDirectory.create(config) as run:
        run.log_metrics(0, {"validation/accuracy": 0.5})
        run.log_metrics(1, {"agent_0/reward/solution": None, "tokens/prompt": 12})
        assert rows(run) == [
            {"step": 0, "validation/accuracy": 0.5},
            {"step": 1, "agent_0/reward/solution": None, "tokens/prompt": 12},
        ]


def test_values_that_are_not_finite_become_null_with_a_warning(
    config: Config, caplog: pytest.LogCaptureFixture
):
    with RunDirectory.create(config) as run:
        run.log_metrics(3, {"a": math.nan, "b": -math.inf, "c": 1.0})
        assert rows(run) == [{"step": 3, "a": None, "b": None, "c": 1.0}]
    assert "step 3: not finite, written as null: a, b" in caplog.text


def test_a_full_disk_is_named_when_a_step_cannot_be_written(config: Config):
    with RunDirectory.create(config) as run:
        (run.path / "metrics.jsonl").unlink()
        (run.path / "metrics.jsonl").symlink_to("/dev/full")
        with pytest.raises(FileError, match=r"metrics.jsonl: No space left on device"):
            run.log_metrics(1, {})


def test_a_log_that_fills_the_disk_ends_with_a_word(config: Config, caplog, capsys):
    with RunDirectory.create(config) as run:
        files = [h for h in logging.getLogger().handlers if isinstance(h, logging.FileHandler)]
        [handler] = [file for file in files if file.baseFilename.endswith("train.log")]
        handler.setStream(open("/dev/full", "w"))  # noqa: SIM115 - the handler closes it
        logging.getLogger("comas").warning("one")
        logging.getLogger("comas").warning("two")
    assert caplog.text.count("train.log ends here: [Errno 28] No space left on device") == 1
    assert "Traceback" not in capsys.readouterr().err
    assert run.path.is_dir()


@pytest.mark.parametrize("writes", ["checkpoint_folder", "models_folder"])
def test_a_full_disk_is_told_whatever_a_library_makes_of_it(config: Config, writes: str):
    with RunDirectory.create(config) as run:
        save_checkpoint(run, 1)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # stands for a full disk
        try:
            told = r"(step_0002|models): File too large \(\d+ MiB are free there\)\. Free space"
            with pytest.raises(FileError, match=told), getattr(run, writes)(2):
                raise RuntimeError("unexpected pos 128 vs 0")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert run.latest_checkpoint() == (1, run.path / "checkpoints/step_0001")
        with pytest.raises(RuntimeError, match="of its own"), getattr(run, writes)(2):
            raise RuntimeError("of its own")


# ---------------------------------------------------------------- discussions


def test_discussions_are_written_readably_with_rewards_and_verdicts(config: Config):
    with RunDirectory.create(config) as run:
        verdicts = {("step1/math/17/copy0", "r0.s0"): "correct"}
        run.save_discussions(1, [discussion()], verdicts=verdicts, answers={"math/17": "71"})
        text = (run.path / "discussions" / "step_0001.jsonl").read_text("utf-8")
    assert "Ça fait 71" in text
    [written] = map(json.loads, text.splitlines())
    assert written["question_id"] == "math/17"
    assert written["num_overlong_prompts"] == 2
    assert written["gold"] == "71"
    solution, evaluation = written["turns"]
    assert (solution["agent"], solution["reward"], solution["verdict"]) == (1, 0.5, "correct")
    assert (evaluation["parent_turn_id"], evaluation["reward"]) == ("r0.s0", None)
    assert "verdict" not in evaluation
    assert (solution["num_prompt_tokens"], solution["num_response_tokens"]) == (3, 3)


# ---------------------------------------------------------------- checkpoints and models


def test_the_newest_checkpoints_are_kept_and_the_latest_found(config: Config):
    config.training.keep_checkpoints = 2
    with RunDirectory.create(config) as run:
        assert run.latest_checkpoint() is None
        for step in (10, 20, 9990, 10000):  # 10000 sorts before 9990 as text
            save_checkpoint(run, step)
        assert names(run.path / "checkpoints") == ["step_10000", "step_9990"]
        assert run.latest_checkpoint() == (10000, run.path / "checkpoints" / "step_10000")


def test_a_checkpoint_that_fails_half_way_leaves_the_one_before(config: Config):
    with RunDirectory.create(config) as run:
        save_checkpoint(run, 10)
        with pytest.raises(KeyboardInterrupt), run.checkpoint_folder(20) as folder:
            (folder / "half").write_text("")
            raise KeyboardInterrupt
        assert names(run.path / "checkpoints") == ["step_0010"]
        with run.checkpoint_folder(10) as folder:  # of the same step: it is replaced
            (folder / "second").write_text("")
        assert names(run.path / "checkpoints" / "step_0010") == ["seal.json", "second"]


def test_a_checkpoint_whose_removal_is_interrupted_no_longer_counts(
    config: Config, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    with RunDirectory.create(config) as run:
        for step in (10, 20):
            save_checkpoint(run, step)
        monkeypatch.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(run, 30)  # the third, of which two are kept
        assert [step for step, _ in steps_in(run.path / "checkpoints")] == [20, 30]


def test_a_run_is_finished_once_the_models_of_its_last_step_are_saved(config: Config):
    with RunDirectory.create(config) as run:
        assert run.why_finished(20) is None
        with run.models_folder(20) as folder:
            (folder / "agent_1").mkdir()
        assert (run.path / "models" / "agent_1").is_dir()
        assert run.why_finished(20) == "this run has made all of its 20 steps"
        assert run.why_finished(30) is None  # extended: the models are those of an earlier step


# ---------------------------------------------------------------- resuming


def test_a_line_that_a_killed_process_left_unfinished_is_forgotten(config: Config):
    with RunDirectory.create(config) as run:
        run.log_metrics(1, {"a": 1})
        with (run.path / "metrics.jsonl").open("a") as file:
            file.write('{"step": 2, "a"')
        run.go_back_to(5)
        run.log_metrics(2, {"a": 2})
        assert [row["step"] for row in rows(run)] == [1, 2]


@pytest.mark.parametrize("damaged", ["", "[1]", '{"a": 1}', '{"step": "x"}', 'x\n{"step": 2}'])
def test_a_line_that_is_no_row_is_an_error_that_names_it(config: Config, damaged: str):
    with RunDirectory.create(config) as run:
        (run.path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{damaged}\n')
        with pytest.raises(FileError, match=r"metrics.jsonl, line 2 is damaged: .*Delete"):
            run.go_back_to(5)


@pytest.mark.parametrize("damaged", ["", "{", "{}", "[1]", "null"])
def test_damaged_versions_are_named_when_a_run_goes_on(config: Config, damaged: str):
    with RunDirectory.create(config) as run:
        pass
    (run.path / "versions.json").write_text(damaged)
    with pytest.raises(FileError, match=r"versions.json is damaged: .* Delete it to go on"):
        RunDirectory.open(resumed(config, run.path))


@pytest.mark.parametrize("damaged", ["", "[1]", '{"a": 1}'])
def test_damaged_inputs_are_named(tmp_path: Path, damaged: str):
    (tmp_path / "inputs.json").write_text(damaged)
    with pytest.raises(FileError, match=r"inputs.json is damaged: .* Delete it"):
        read_inputs(tmp_path)


def kept_config(run: RunDirectory) -> Config:
    return load_config(run.path / "config.yaml", [])


def test_other_settings_need_a_word_and_are_kept_once_the_run_has_loaded(
    config: Config, caplog: pytest.LogCaptureFixture
):
    with RunDirectory.create(config) as run:
        pass
    changed = "training.num_steps=60"
    with pytest.raises(
        ValueError, match=r"\(training.num_steps: null -> 60\).*resume_changed=true"
    ):
        RunDirectory.open(resumed(config, run.path, changed))
    with RunDirectory.open(resumed(config, run.path, changed, "resume_changed=true")) as again:
        assert "goes on with other settings: training.num_steps: null -> 60" in caplog.text
        assert kept_config(again).training.num_steps is None  # it may yet fail to load
        again.keep_settings({})
        kept = kept_config(again)
    assert kept.training.num_steps == 60
    assert (kept.resume, kept.resume_changed) == (None, False)


@pytest.mark.parametrize("empty", ["resume=", "resume=null", "resume=''"])
def test_a_resume_that_names_no_run_does_not_begin_one(config: Config, tmp_path: Path, empty: str):
    with pytest.raises(ConfigError, match="names no run"):
        load_config(None, [empty])
    with pytest.raises(ConfigError, match="must be the folder of a run"):
        resumed(config, tmp_path)


# ---------------------------------------------------------------- the key


def test_the_key_is_made_once_and_the_users_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert look_for_key() == "made at the start"
    assert names(tmp_path) == []
    key = user_key()
    assert (look_for_key(), user_key()) == ("here", key)
    path = tmp_path / "state/comas/seal.key"
    assert (path.read_bytes(), len(key)) == (key, 32)
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(path.parent) == ["seal.key"]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("file", "(Not a directory|File exists)"),
        ("/proc", "(No such file or directory|Permission denied)"),  # where nobody makes a folder
        ("taken", "Is a directory"),
    ],
)
def test_a_run_without_a_place_for_its_key_ends_before_it_begins(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str, said: str
):
    (tmp_path / "file").touch()
    (tmp_path / "taken/comas/seal.key").mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / state))
    told = f"{tmp_path / state}/comas/seal.key, can .* made: {said}. Set XDG_STATE_HOME to a folder"
    with pytest.raises(FileError, match=told):
        RunDirectory.create(config)
    assert not (Path(config.saves) / "latest").is_symlink()


@pytest.mark.parametrize("asks", [user_key, look_for_key])
def test_a_user_without_a_home_is_told_where_a_key_can_be(
    monkeypatch: pytest.MonkeyPatch, asks: Callable[[], object]
):
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    with monkeypatch.context() as patch, pytest.raises(FileError) as raised:
        patch.setattr(os, "getuid", lambda: 2**31 - 7)  # whom no system knows
        asks()
    assert "HOME is not set, and user 2147483641 is not in" in str(raised.value)
    assert "Set XDG_STATE_HOME to a folder that you can write to" in str(raised.value)


def test_a_run_keeps_its_key_when_its_home_is_lost(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    home = tmp_path / "home"
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    with RunDirectory.create(config) as run:
        shutil.rmtree(home)
        home.touch()
        save_checkpoint(run, 10)
        assert run.latest_checkpoint() == (10, run.path / "checkpoints/step_0010")


DIES = """
import os, signal, sys
from pathlib import Path
from comas.config import Config, load
from comas.run import RunDirectory
run = RunDirectory.create(load(Config, None, ["saves=" + sys.argv[1]]))
run.log_metrics(1, {})
with run.checkpoint_folder(10) as folder:
    (folder / "whole").write_text("")
with run.checkpoint_folder(20) as folder:
    (folder / "half").write_text("")
    if os.fork() == 0:  # a worker that outlives this process must not keep its lock
        os.setsid(); sys.stdin.read(); os._exit(0)
    print(run.path, flush=True)
    sys.stdin.read()
"""


def test_a_killed_run_frees_its_lock_and_loses_only_what_was_incomplete(config: Config):
    command = [sys.executable, "-c", DIES, config.saves]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        with pytest.raises(FileError, match=f"written by process {process.pid}: wait"):
            RunDirectory.open(resumed(config, path))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert names(path / "checkpoints") == [".partial-step_0020", "step_0010"]
        with RunDirectory.open(resumed(config, path)) as run:  # the forked worker still lives
            assert names(path / "checkpoints") == ["step_0010"]
            assert [row["step"] for row in rows(run)] == [1]
