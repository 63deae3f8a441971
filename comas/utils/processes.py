"""Inspect and kill processes, which may exit at any moment."""

import ctypes
import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

RESOURCE_TRACKER = "multiprocessing.resource_tracker"
"""Python's process that removes leaked shared memory; it exits by itself."""
_PR_SET_PDEATHSIG = 1
GRACE_S = 2.0
"""How long multiprocessing's resource trackers have for their clean-up."""


def command_line(process: psutil.Process) -> list[str]:
    """Return a process's arguments; empty if it has exited or is another user's."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def name(process: psutil.Process) -> str:
    """Return the name of a process's program; empty if it has exited."""
    with suppress(psutil.Error):
        return process.name()
    return ""


def peak_bytes(process: psutil.Process) -> int:
    """Return the peak resident memory of a process, shared pages included; 0 if it has exited."""
    with suppress(OSError, psutil.Error):
        status = Path(f"/proc/{process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) << 10
    return 0


def is_alive(process: psutil.Process) -> bool:
    """True unless the process has exited; zombies count as exited."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def is_resource_tracker(process: psutil.Process) -> bool:
    """True for Python's resource trackers, which must be left to finish their clean-up."""
    return any(RESOURCE_TRACKER in word for word in command_line(process))


def return_free_memory() -> None:
    """Return this process's free heap pages to the system; glibc keeps them after each update."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def end_with_parent() -> None:
    """Have Linux kill this process, even a stopped one, when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_processes(*, variable: str, value: str) -> None:
    """Kill this user's processes that have this environment variable."""
    found = list(_started_with(variable, value))
    trackers = [process for process in found if is_resource_tracker(process)]
    _kill(process for process in found if process not in trackers)
    # They exit by themselves, now that the processes they track are gone.
    _, slow = psutil.wait_procs(trackers, timeout=GRACE_S)
    _kill(slow)


def _started_with(variable: str, value: str) -> Iterator[psutil.Process]:
    """Yield other processes with this variable, except this one's own resource tracker."""
    # Trap: a process that sets its title overwrites its environment in /proc, and is not found.
    for process in psutil.process_iter(["environ", "ppid"]):
        environment = process.info["environ"] or {}  # None for other users' and exited processes
        is_ours = process.info["ppid"] == os.getpid() and is_resource_tracker(process)
        if environment.get(variable) == value and process.pid != os.getpid() and not is_ours:
            yield process


def _kill(processes: Iterable[psutil.Process]) -> None:
    killed = list(processes)
    for process in killed:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(killed, timeout=GRACE_S)
