"""The end of a run's processes, however they fork, leave their group or take their time to die."""

import os
import signal
import time
from contextlib import suppress

_WITHIN_S = 10.0
"""A process that is killed takes a moment to let go of its memory, on a busy machine too."""
_LOOK_EVERY_S = 0.0005


def end_namespace(cell: int) -> None:
    """Kill the cell, and with its child, the first of a PID namespace, all others; reap them."""
    os.kill(cell, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def end_tree() -> None:
    """Kill and reap every descendant: as their subreaper this process inherits the orphans. Raises
    OSError when something is still there after all that time."""
    deadline = time.monotonic() + _WITHIN_S
    while not _has_reaped_all():
        # A killed process with much memory keeps its children for a while, which fork on
        # meanwhile, out of sight of who looks for orphans. So first all of them stand still.
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
    """Each thread has its own."""
    children: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it is gone, and its children ours
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children") as file:
                children += map(int, file.read().split())
    return children
