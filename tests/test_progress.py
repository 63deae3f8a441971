"""Long work reports its progress."""

import logging
import time
from collections.abc import Callable

import pytest

from comas.utils import progress
from comas.utils.progress import progress_bar


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Shortens ten seconds to a fiftieth of one."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.02)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LOOKS", 0.02)
    caplog.set_level(logging.INFO)


def wait_until(holds: Callable[[], object]) -> None:
    """Return when ``holds()``; fail when it does not within 20 s."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("initial", "left"), [(0, "03:20"), (24, "04:26"), (75, "?")])
def test_the_time_left_follows_from_what_was_counted_here(caplog, initial, left):
    # A tenth of the rest must have been counted: 21 of 213 are less.
    with progress_bar("rollout", unit="turn", total=288, initial=initial) as bar:
        assert str(bar) == f"rollout: {initial}/288 turns, 00:00 so far, ? left"
        bar.set_postfix(failed=1, refresh=False)
        bar.update(96 - initial)
        bar.start_t -= 100  # seconds
        wait_until(lambda: caplog.messages)
    told = f"rollout: 96/288 turns, 01:40 so far, {left} left, failed=1"
    assert caplog.messages[0] == told
