"""Looking at processes that may end at any moment, and ending them."""

import ctypes
import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

RESOURCE_TRACKER = "multiprocessing.resource_tracker"
"""Python's process that removes the shared memory which others leave; it ends by itself."""
_PR_SET_PDEATHSIG = 1
GRACE_S = 2.0
"""How long multiprocessing's resource trackers have to remove what their process left behind."""


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


def peak_bytes(process: psutil.Process) -> int:
    """The most memory that a process has held, shared memory included, of which several count the
    same; 0 if it has ended."""
    with suppress(OSError, psutil.Error):
        status = Path(f"/proc/{process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) << 10
    return 0


def is_alive(process: psutil.Process) -> bool:
    """True if it runs or can be made to; one that has ended and was not waited for does not."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def is_resource_tracker(process: psutil.Process) -> bool:
    """True if it is one of Python's, which must not be killed before it has done its work."""
    return any(RESOURCE_TRACKER in word for word in command_line(process))


def return_free_memory() -> None:
    """Give free pages of this process's heap back to the system, which glibc would keep: after
    every update other blocks lie between them. (Without glibc nothing happens.)"""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def end_with_parent() -> None:
    """Have Linux kill this process when the thread that started it ends, also if this one is
    frozen."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def keep_from_children(lock: Path) -> None:
    """Let no child inherit the open file ``lock``: a plug-in's fork that outlives this process
    would still hold the lock on it."""
    for opened in Path("/proc/self/fd").iterdir():
        if lock.exists() and opened.exists() and opened.samefile(lock):
            descriptor = int(opened.name)
            os.set_inheritable(descriptor, False)
            os.register_at_fork(after_in_child=partial(os.close, descriptor))


def end_forks() -> None:
    """Kill the children that are copies of this process and have started no program."""
    own = psutil.Process()
    _kill(child for child in own.children() if command_line(child) == command_line(own))


def end_processes(*, variable: str, value: str) -> None:
    """Kill whatever this user runs that was started with this environment variable."""
    found = list(_started_with(variable, value))
    trackers = [process for process in found if is_resource_tracker(process)]
    _kill(process for process in found if process not in trackers)
    # They end by themselves, now that nobody is left for whom they keep track.
    _, slow = psutil.wait_procs(trackers, timeout=GRACE_S)
    _kill(slow)


def end_process(pid: int) -> None:
    """Kill one process of this machine, if it is still there."""
    with suppress(psutil.NoSuchProcess):
        _kill([psutil.Process(pid)])


def _started_with(variable: str, value: str) -> Iterator[psutil.Process]:
    """Other processes with this environment variable, but for this one's own resource tracker."""
    for process in psutil.process_iter(["environ", "ppid"]):
        environment = process.info["environ"] or {}  # None: of another user, or just ended
        is_ours = process.info["ppid"] == os.getpid() and is_resource_tracker(process)
        if environment.get(variable) == value and process.pid != os.getpid() and not is_ours:
            yield process


def _kill(processes: Iterable[psutil.Process]) -> None:
    killed = list(processes)
    for process in killed:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(killed, timeout=GRACE_S)
