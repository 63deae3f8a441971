"""Ends a run's processes, even if they keep forking, leave their group or die slowly."""

import os
import signal
import time
from contextlib import suppress

_WITHIN_S = 10.0
"""A killed process takes a moment to free its memory, and longer on a busy machine."""
_LOOK_EVERY_S = 0.0005


def end_namespace(cell: int) -> None:
    """Kill and reap the cell and all others: its child is the first of their PID namespace."""
    os.kill(cell, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def end_tree() -> None:
    """Kill and reap every descendant: as their subreaper this process inherits the orphans. Raises
    OSError if any is left after ``_WITHIN_S``."""
    deadline = time.monotonic() + _WITHIN_S
    while not _has_reaped_all():
        # A killed process with much memory keeps its children for a while, and these fork on
        # unseen until they are orphans. So all are stopped first.
        tree: set[int] = set()
        while (found := _descendants()) - tree:
            _signal(found - tree, signal.SIGSTOP)
            tree |= found
        _signal(tree, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise OSError("the processes of a program do not end")
        time.sleep(_LOOK_EVERY_S)


def _has_reaped_all() -> bool:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return False
    return True


def _signal(processes: set[int], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _descendants() -> set[int]:
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        new = set(_children(waiting.pop())) - found
        found |= new
        waiting += new
    return found


def _children(process: int) -> list[int]:
    """Each thread has its own children."""
    children: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it is gone: its children are ours
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children") as file:
                children += map(int, file.read().split())
    return children
