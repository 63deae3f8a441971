"""Looking at processes that may end at any moment."""

from contextlib import suppress

import psutil

RESOURCE_TRACKER = "multiprocessing.resource_tracker"
"""Python's process that removes the shared memory which others leave; it ends by itself."""


def command_line(process: psutil.Process) -> list[str]:
    """The words of its command; none if it has ended, or is another user's."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def name(process: psutil.Process) -> str:
    """The name of its program; empty if it has ended."""
    with suppress(psutil.Error):
        return process.name()
    return ""


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs or can be made to; one that has ended and was not waited for does not."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def is_resource_tracker(process: psutil.Process) -> bool:
    """Whether it is one of Python's, which must not be killed before it has done its work."""
    return any(RESOURCE_TRACKER in word for word in command_line(process))
