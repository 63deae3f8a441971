"""Start programs, and find the processes that they leave behind."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

REPOSITORY = Path(__file__).parents[1]
MARK, MARK_VALUE = "COMAS_TEST_RUN", str(os.getpid())
"""In the environment of every process started by ``start``, directly or not."""


def run_to_end(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, **options)


def start(*command: str | Path) -> subprocess.Popen[str]:
    """Start a command in the repository, with all its output in one pipe."""
    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=os.environ | {MARK: MARK_VALUE},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def descendants() -> list[psutil.Process]:
    """All processes started by ``start``, whatever their parent is now."""
    return [
        process
        for process in psutil.process_iter(["environ", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and (process.info["environ"] or {}).get(MARK) == MARK_VALUE
    ]


def assert_nothing_is_left(within_s: float = 200) -> None:
    """After a SIGKILL nothing cleans up; Ray's agents end by themselves within two minutes."""
    deadline = time.monotonic() + within_s
    while left := descendants():
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
