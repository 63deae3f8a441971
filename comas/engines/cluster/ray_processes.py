"""The processes of a Ray that was started on this machine: whether they are all there."""

import time
from collections.abc import Sequence

import psutil

from comas.engines.cluster.supervision import LostEngineError
from comas.utils.processes import name

ESSENTIAL = ("gcs_server", "raylet")
"""Without one of these Ray answers nothing, or ends whoever is connected to it after a minute."""


class RayProcesses:
    """Notices when Ray is lost, long before Ray itself tells.

    Example::

        ray_processes = RayProcesses(psutil.Process().children(recursive=True), patience_s=120)
        ray_processes.check()  # raises LostEngineError, once one of them is gone
    """

    def __init__(self, processes: Sequence[psutil.Process], *, patience_s: float) -> None:
        """Watch the essential ones of ``processes``; one that is frozen may be so for
        ``patience_s``."""
        self._processes = [process for process in processes if name(process) in ESSENTIAL]
        self._patience_s = patience_s
        self._frozen_since: dict[psutil.Process, float] = {}

    def are_sound(self) -> bool:
        """Whether all are there, and none is frozen at this moment."""
        return all(_state(process) == "running" for process in self._processes)

    def check(self) -> None:
        """Raise LostEngineError when one is gone, or has been frozen for too long."""
        now = time.monotonic()
        for process in self._processes:
            state = _state(process)
            if state == "running":
                self._frozen_since.pop(process, None)
            elif state == "gone":
                raise LostEngineError(f"Ray is lost: its process {process.pid} is gone")
            elif now - self._frozen_since.setdefault(process, now) > self._patience_s:
                raise LostEngineError(
                    f"Ray is lost: its process {process.pid} was frozen for "
                    f"{self._patience_s:.0f} s (cluster.heartbeat_timeout_s)"
                )


def _state(process: psutil.Process) -> str:
    """``running``, ``frozen`` or ``gone``."""
    try:
        status = process.status()
    except psutil.NoSuchProcess:
        return "gone"
    if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        return "gone"
    return "frozen" if status == psutil.STATUS_STOPPED else "running"
