"""Looking at processes that end: ``comas.utils.processes``."""

import subprocess
import sys

import psutil
from waiting import wait_until

from comas.utils.processes import command_line, is_alive, is_resource_tracker, name


def test_a_process_that_has_ended_has_no_words_and_is_not_alive():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = psutil.Process(child.pid)
    assert is_alive(process) and name(process) == process.name()
    assert not is_resource_tracker(process)
    assert child.stdin is not None
    child.stdin.write(b"\n")
    child.stdin.close()
    wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE)
    assert command_line(process) == [] and not is_alive(process)
    child.wait()
    assert command_line(process) == [] and not is_alive(process)
    assert name(process) == ""


def test_a_resource_tracker_is_known_by_its_command():
    words = [sys.executable, "-c", "input()", "multiprocessing.resource_tracker"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as child:
        wait_until(lambda: command_line(psutil.Process(child.pid)) == words)
        assert is_resource_tracker(psutil.Process(child.pid))
