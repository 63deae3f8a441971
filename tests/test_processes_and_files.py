"""Processes that end, temporary folders, files that survive kills and full disks, and locks."""

import asyncio
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tables import case_file

from comas.utils.concurrency import run_all
from comas.utils.files import FileError, append_lines, locked, read_lines, write_files
from comas.utils.interrupts import run
from comas.utils.temporary import temporary_folder

SLEEPS = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
PROGRAMS = case_file("processes_and_files")


@pytest.fixture
def outer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where folders are made; its name is short, as sockets need."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(folder)
    tempfile.tempdir = None


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_temporary_folder_is_ones_own_and_nothing_of_it_stays(outer, monkeypatch):
    (outer / "comas-notes").mkdir()  # somebody else's, as is a folder that has been written
    (outer / "comas-data").mkdir()
    (outer / "comas-data/.lock").touch()
    with temporary_folder() as folder:
        frozen = subprocess.Popen(SLEEPS)
        os.kill(frozen.pid, signal.SIGSTOP)
        assert folder.parent == outer
        assert folder.stat().st_mode & 0o777 == 0o700
        assert os.environ["TMPDIR"] == tempfile.gettempdir() == str(folder)
        (folder / "left").mkdir()
        (folder / "left/behind").touch()
    assert os.environ["TMPDIR"] == tempfile.gettempdir() == str(outer)
    assert {path.name for path in outer.iterdir()} == {"comas-notes", "comas-data"}
    assert not is_running(frozen.pid)
    long = outer / "a-long-name-that-sockets-cannot-have"
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with temporary_folder() as folder:
        assert folder.parent == Path("/tmp")


def test_what_a_killed_command_left_is_removed_by_the_next(outer):
    stranger = subprocess.Popen(SLEEPS)  # another process of this user, in no such folder
    command = [sys.executable, "-c", PROGRAMS["HOLDS_A_FOLDER"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        name, pid = holder.stdout.readline().split()
        with temporary_folder():  # of a living one, nothing is touched
            assert Path(name).is_dir()
            assert is_running(int(pid))
        holder.kill()
    assert Path(name).is_dir()
    with temporary_folder():
        assert not Path(name).exists()
        assert not is_running(int(pid))
        assert is_running(stranger.pid)
    stranger.kill()
    stranger.wait()


def test_ctrl_c_again_and_again_changes_nothing_and_shows_no_traceback(outer):
    command = [sys.executable, "-c", PROGRAMS["STOPS_SLOWLY"]]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "ending\n"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            process.send_signal(number)
            time.sleep(0.05)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "ending the engines: a moment" in errors
    assert "Traceback" not in errors
    assert list(outer.iterdir()) == []


def test_files_are_replaced_at_once_and_all_or_none(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(FileError, match=r"cannot write .*missing/b: No such file"):
        write_files({tmp_path / "a": "new", tmp_path / "missing" / "b": "new"})
    assert (tmp_path / "a").read_text() == "old"
    with (tmp_path / "a").open() as reader:
        write_files({tmp_path / "a": "new"})
        assert reader.read() == "old"
    assert (tmp_path / "a").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_files_are_whole_on_the_disk_before_any_of_them_is_replaced(tmp_path, monkeypatch):
    events: list[tuple[str, str]] = []
    replace = Path.replace

    def reached(file: int) -> None:
        """Note what any other process reads from it: no buffer of this one counts."""
        events.append(("on disk", Path(f"/proc/self/fd/{file}").read_text()))

    def noted(path: Path, target: Path) -> Path:
        events.append(("replaced", target.name))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", reached)
    monkeypatch.setattr(Path, "replace", noted)
    write_files({tmp_path / "a": "one", tmp_path / "b": "two"})
    written = [("on disk", "one"), ("on disk", "two")]
    assert events == [*written, ("replaced", "a"), ("replaced", "b")]


def test_a_line_that_a_kill_cut_off_is_not_read_and_the_next_one_replaces_it(tmp_path):
    path = tmp_path / "log.jsonl"
    append_lines(path, [b"1", b"2"])
    with path.open("ab") as file:
        file.write(b"[3, ")
    assert read_lines(path, json.loads, remedy="Delete it") == [1, 2]
    append_lines(path, [b"4"])
    assert path.read_bytes() == b"1\n2\n4\n"


def test_a_full_disk_keeps_the_whole_lines_and_no_half_one(tmp_path):
    path = tmp_path / "log.jsonl"
    append_lines(path, [b"1"])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(
            FileError,
            match=r"cannot write .*log.jsonl: File too large \(\d+ MiB and \d+ inodes are",
        ):
            append_lines(path, [b"22", b"33333333"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"1\n22\n"


def test_a_lock_holds_against_other_processes_and_a_second_attempt_of_this_one(tmp_path):
    command = [sys.executable, "-c", PROGRAMS["TRIES_TO_LOCK"], str(tmp_path)]
    with locked(tmp_path, remedy=""):
        with pytest.raises(FileError, match="written by process"), locked(tmp_path, remedy=""):
            pass
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert f"is being written by process {os.getpid()}: wait for it" in refused.stderr
    subprocess.run(command, check=True)
    with locked(tmp_path, remedy=""):
        pass


def interrupt_twice(line: int) -> bool:
    """Press Ctrl-C within a coroutine of many tasks, and again at the ``line``-th line that the
    event loop then executes; returns False when it ended before that line."""
    lines = itertools.count(1)

    def press_at_line(frame: Any, event: str, argument: object) -> Any:
        if event == "line" and next(lines) == line:
            signal.raise_signal(signal.SIGINT)
        return press_at_line

    def trace(frame: Any, event: str, argument: object) -> Any:
        return press_at_line if "/asyncio/" in frame.f_code.co_filename else None

    async def work(number: int) -> None:
        if number == 3:
            sys.settrace(trace)
            signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(60)

    try:
        with pytest.raises(KeyboardInterrupt):
            run(run_all(work(number) for number in range(5)))
    finally:
        sys.settrace(None)
    return next(lines) > line


@pytest.mark.stack
def test_ctrl_c_twice_ends_coroutines_wherever_the_second_one_comes():
    """``asyncio.run`` never ends after some of these pairs."""
    assert sum(itertools.takewhile(bool, map(interrupt_twice, itertools.count(4, 5)))) > 100
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
