"""Looking at processes that end: ``comas.utils.processes``."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest
from waiting import wait_until

from comas.utils.processes import command_line, is_alive, is_resource_tracker, name


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_a_process_that_has_ended_has_no_words_and_is_not_alive(is_waited_for):
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    process = psutil.Process(child.pid)
    assert is_alive(process) and name(process) == process.name()
    assert not is_resource_tracker(process)
    assert child.stdin is not None
    child.stdin.close()
    if is_waited_for:
        child.wait()
        assert name(process) == ""
    else:
        wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE)
    assert command_line(process) == []
    assert not is_alive(process)
    child.wait()


def test_a_resource_tracker_is_known_by_its_command():
    words = [sys.executable, "-c", "import os; os.read(0, 1)", "multiprocessing.resource_tracker"]
    child = subprocess.Popen(words, stdin=subprocess.PIPE)
    with child:
        wait_until(lambda: command_line(psutil.Process(child.pid)) == words)
        assert is_resource_tracker(psutil.Process(child.pid))
