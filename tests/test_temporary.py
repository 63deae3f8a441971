"""Nothing of a command stays in the temporary folder or goes on running, however it ended."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from comas.utils.temporary import outer_folder, temporary_folder

SLEEPS = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
HOLDS_A_FOLDER = """
import subprocess, sys, time
from comas.utils.temporary import temporary_folder
with temporary_folder() as folder:
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    print(folder, child.pid, flush=True)
    time.sleep(60)
"""

STOPS_SLOWLY = """
import time
from comas.utils.terminal import run_command, start_command, deferred_signals
def main(arguments):
    start_command("comas")
    try:
        try:
            print("ready", flush=True)
            time.sleep(60)
        finally:
            with deferred_signals("ending the engines"):
                print("ending", flush=True)
                time.sleep(1)
    except KeyboardInterrupt:
        return 130
run_command(main)
"""


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


def test_a_temporary_folder_is_ones_own_and_nothing_of_it_stays(outer):
    (outer / "comas-notes").mkdir()  # somebody else's, as is a locked folder of another name
    (outer / "elsewhere").mkdir()
    (outer / "elsewhere/.lock").touch()
    with temporary_folder() as folder:
        frozen = subprocess.Popen(SLEEPS)
        os.kill(frozen.pid, signal.SIGSTOP)
        assert folder.parent == outer_folder() == outer
        assert folder.stat().st_mode & 0o777 == 0o700
        assert os.environ["TMPDIR"] == tempfile.gettempdir() == str(folder)
        (folder / "left").mkdir()
        (folder / "left/behind").touch()
    assert os.environ["TMPDIR"] == tempfile.gettempdir() == str(outer)
    assert outer_folder() == outer
    assert {path.name for path in outer.iterdir()} == {"comas-notes", "elsewhere"}
    assert not is_running(frozen.pid)


def test_what_a_killed_command_left_is_removed_by_the_next(outer):
    stranger = subprocess.Popen(SLEEPS)  # another process of this user, in no such folder
    command = [sys.executable, "-c", HOLDS_A_FOLDER]
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


def test_a_long_name_gives_way_to_one_that_sockets_can_have(outer, monkeypatch):
    long = outer / "a-long-name-for-a-temporary-folder"
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    with temporary_folder() as folder:
        assert folder.parent == Path("/tmp")


def test_ctrl_c_again_and_again_changes_nothing_and_shows_no_traceback(outer):
    command = [sys.executable, "-c", STOPS_SLOWLY]
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
