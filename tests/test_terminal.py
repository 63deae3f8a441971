"""What a command says on a terminal fits it, and can be copied."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios

import pytest

from comas.utils.terminal import WIPE, folded

SAYS = """
import logging
from comas.utils.terminal import start_command
start_command("told")
logging.getLogger("told").info("one two three four five\\n  six seven eight nine")
"""

WAITS = """
import os, signal, time
from comas.utils.terminal import start_command, deferred_signals
start_command("told")
try:
    with deferred_signals("tidying"):
        os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGHUP)
    print("went on")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.usefixtures("session_that_can_close")
def test_a_closed_session_ends_a_command_as_ctrl_c_does_but_not_under_nohup():
    def said(*before: str) -> str:
        command = [*before, sys.executable, "-c", WAITS]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said() == "interrupted\n"
    assert said("nohup") == "went on\n"


def test_a_long_line_goes_on_below_with_an_indent():
    line = "  rollout: batch_size=24, dtype=float32"
    assert folded(line, 30) == "  rollout: batch_size=24,\n      dtype=float32"
    assert folded(line, len(line)) == line
    assert folded(line, 0) == line  # a terminal that does not know its width


def test_double_blanks_and_long_words_stay():
    assert folded("step 1/9  accuracy 0.4  reward 1", 24) == "step 1/9  accuracy 0.4\n    reward 1"
    assert (
        folded("in /a/folder/with/a/long-long/name", 12)
        == "in\n    /a/folder/with/a/long-long/name"
    )


def test_a_command_stays_whole():
    command = "bash scripts/train_comas.sh resume=saves/20261122-064713-quickstart"
    assert folded(f"to continue: {command}", 40) == f"to continue:\n    {command}"
    quoted = "bash scripts/train_comas.sh resume='my own runs/20261122-064713-quickstart'"
    assert folded(f"to continue: {quoted}", 40) == f"to continue:\n    {quoted}"
    line = "built by bash scripts/prepare_data.sh --only gsm8k. The same command trains it."
    assert folded(line, 54) == (
        "built by bash scripts/prepare_data.sh --only gsm8k.\n    The same command trains it."
    )


def test_messages_are_folded_on_a_terminal_alone():
    command = [sys.executable, "-c", SAYS]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert piped.stderr == "one two three four five\n  six seven eight nine\n"
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 16))
    subprocess.run(command, stderr=theirs, check=True)
    os.close(theirs)
    said = os.read(ours, 1000).decode()
    os.close(ours)
    assert said.startswith(WIPE)
    assert said.removeprefix(WIPE).splitlines() == [
        "one two three",
        "    four five",
        "  six seven",
        "      eight nine",
    ]
