"""Programs that tests start, and what is left of them."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

REPOSITORY = Path(__file__).parents[1]
MARK, MARK_VALUE = "COMAS_TEST_RUN", str(os.getpid())
"""In the environment of every process that ``start`` starts, directly or not."""


def run_to_end(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """What a command says until it ends, however it ends."""
    return subprocess.run(command, capture_output=True, text=True, **options)


def start(*command: str | Path) -> subprocess.Popen[str]:
    """Begin a command in the repository; all its output comes in one pipe."""
    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=os.environ | {MARK: MARK_VALUE},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def descendants() -> list[psutil.Process]:
    """Every process that ``start`` led to, whoever its parent is by now."""
    return [
        process
        for process in psutil.process_iter(["environ", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and (process.info["environ"] or {}).get(MARK) == MARK_VALUE
    ]


def assert_nothing_is_left(within_s: float = 20) -> None:
    """After a SIGKILL nobody cleans up: Ray's agents notice for themselves, within a minute or
    two."""
    deadline = time.monotonic() + within_s
    while left := descendants():
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
