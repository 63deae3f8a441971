"""Waiting for what happens beside a test."""

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object]) -> None:
    """Return when ``holds()``; fail when it does not within 20 s."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)
