"""How a command ends, and what it says where a disk is full."""

import re
import subprocess
import sys

import pytest
from tables import cases

from comas.utils.terminal import printable

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

LEAVES = """
import atexit, sys, threading, time
from comas.utils.terminal import leave
class Told:
    def __del__(self): print("cleared")
told = Told()
sys.modules["kept"] = told
atexit.register(print, "tidied")
threading.Thread(target=lambda: (time.sleep(0.2), print("worked"))).start()
sys.stdout.write("said ")
leave(3)
"""

ANSWERS = """
import logging, subprocess, sys
from comas.utils.terminal import command, run_command
@command("told")
def main(arguments):
    logging.getLogger("told").info("told")
    subprocess.run(["sh", "-c", "echo child"], check=False)
    sys.stdout.write("answer")
    return 0
run_command(main)
"""


@pytest.mark.usefixtures("session_that_can_close")
def test_a_closed_session_ends_a_command_as_ctrl_c_does_but_not_under_nohup():
    def said(*before: str) -> str:
        command = [*before, sys.executable, "-c", WAITS]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said() == "interrupted\n"
    assert said("nohup") == "went on\n"


def test_a_command_leaves_when_all_is_done_and_clears_no_modules():
    left = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True)
    assert (left.returncode, left.stdout, left.stderr) == (3, "said worked\ntidied\n", "")


HELP = "-m comas.commands --help"
NO_TEMPORARY = "error: no temporary file can be written (No usable temporary directory found"


@cases(
    "ending, program, status, out, err",
    ("", "ulimit -f 0; -c", 1, "", NO_TEMPORARY),
    ("", f"ulimit -f 0; {HELP}", 1, "", NO_TEMPORARY),
    ("", "-c", 0, "child\nanswer", "told\n"),
    (">/dev/full", "-c", 1, "", "told\n"),
    (">/dev/full", HELP, 0, "", ""),  # argparse does not mind
)
def test_a_disk_or_a_standard_output_that_is_full_causes_no_traceback(
    ending, program, status, out, err
):
    *limit, program = program.split("; ")
    what = f"-c '{ANSWERS}'" if program == "-c" else program
    line = "; ".join([*limit, f"{sys.executable} {what} {ending}"])
    told = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    assert told.returncode == status
    assert told.stdout.startswith(out) and bool(told.stdout) == bool(out)
    assert told.stderr.startswith(err)
    assert "Traceback" not in told.stderr
    assert len(re.findall("^error: ", told.stderr, re.MULTILINE)) == (status != 0)


@cases(
    "text, shown",
    ("so 7,\n\tor \u00e9\u4e09", "so 7,\n\tor \u00e9\u4e09"),
    ("\x1b[2J\x1b]0;title\x07fine", r"\x1b[2J\x1b]0;title\x07fine"),
    ("wrong\rright", r"wrong\rright"),
    ("a\u202eb\u200bc\x9b", r"a\u202eb\u200bc\x9b"),
)
def test_what_a_model_says_moves_no_cursor(text, shown):
    assert printable(text) == shown
