"""The fork server: runs a program for each JSON message on its standard input, a socket.

    {"names_may_shadow": false, "limits": {"wall_s": 10.0, ...}}

Two files come with a message, the texts of the program and its checker; the reply is a line of
JSON. The server does not read the texts: only the process that runs one of them has it in memory.
"""

import contextlib
import gc
import importlib
import json
import math
import os
import select
import socket
import sys
import time
import types
from collections.abc import Callable
from functools import partial
from typing import Any

from . import Limits, bare, namespaces, system
from .cell import BROKEN, FAILED, PASSED, STARTED, Cell

PRELOADED = (
    *("random", "array", "bisect", "cmath", "collections", "copy", "dataclasses", "datetime"),
    *("decimal", "enum", "fractions", "functools", "hashlib", "heapq", "inspect", "io"),
    *("itertools", "math", "operator", "re", "statistics", "string", "typing"),
)
"""Imported once, by the server: most programs and checkers use some of them. Not threading, whose
work after each fork takes about as long as the fork."""

_LOOK_EVERY_S = 0.02
caller = socket.socket(fileno=0)


class Server:
    """Runs programs one after the other until its caller is gone."""

    def __init__(self, mode: str, system_call_filter: str, *preloaded: str) -> None:
        """``mode``: isolated or bare. ``system_call_filter``: BPF in hexadecimal digits.
        ``preloaded``: optionally, a file to import and the folder of the installed packages.

        Raises OSError if the machine does not allow it, ImportError if a package is missing.
        """
        self._is_isolated = mode == "isolated"
        self._filter = bytes.fromhex(system_call_filter)
        self.missing: dict[str, str] = {}
        # From here on, only Python's own read-only library is imported from.
        sys.path.remove(os.environ["PYTHONPATH"])
        sys.executable = os.path.realpath(sys.executable)  # programs do not see the virtual one
        if preloaded:
            _import_file(*preloaded)
        os.environ.clear()
        _preload()
        self.landlock: int | None = None
        if not self._is_isolated:
            try:
                self.landlock = bare.version()
            except OSError as error:
                self.missing["landlock"] = str(error)
        system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # a program ends before the trainer where memory is short
        if self._is_isolated:
            namespaces.isolate()
        # Processes of its user can read neither the server's memory nor a cell's.
        system.prctl(system.PR_SET_DUMPABLE, 0)
        gc.freeze()

    def serve(self) -> None:
        while True:
            request, texts, *_ = socket.recv_fds(caller, 4096, 2)
            reply = self._run(json.loads(request), *texts) if request else None
            if reply is None:
                return
            answer(reply)

    def _run(self, request: dict[str, Any], program: int, checker: int) -> dict[str, Any] | None:
        """Run one program; None if the caller is gone meanwhile."""
        limits = Limits(**request["limits"])
        deadline = time.monotonic() + limits.wall_s
        place = None if self._is_isolated else bare.make_folder()
        report, report_end = os.pipe()
        server = os.getpid()
        cell = os.fork()
        if cell == 0:
            Cell(
                program,
                checker,
                report_end,
                limits,
                request["names_may_shadow"],
                system_call_filter=self._filter,
                folder=place,
                has_file_rules=self.landlock is not None,
            ).enter(server=server)
        for descriptor in (program, checker, report_end):
            os.close(descriptor)
        is_over = partial(bare.is_over, place, limits.disk_mib) if place else None
        try:
            is_abandoned = _wait(cell, deadline, is_over)
        finally:
            if place:
                bare.end_tree()
                bare.remove_folder(place)
            else:
                namespaces.end(cell)
        with open(report, "rb") as file:
            return None if is_abandoned else _reply(file.read())


def _import_file(file: str, packages: str) -> None:
    """Import a module from its file, with the installed packages in the path."""
    sys.path.append(packages)
    name = os.path.basename(file).removesuffix(".py")
    module = sys.modules[name] = types.ModuleType(name)
    with open(file) as source:
        exec(compile(source.read(), file, "exec"), vars(module))


def _preload() -> None:
    """Import ``PRELOADED``, and give every run the same random numbers."""
    register = os.register_at_fork
    os.register_at_fork = lambda **hooks: None  # random would draw a new seed after each fork
    for name in PRELOADED:
        importlib.import_module(name)
    os.register_at_fork = register
    importlib.import_module("random").seed(0)


def _wait(cell: int, deadline: float, is_over: Callable[[], bool] | None) -> bool:
    """Wait for the cell's end, the deadline or ``is_over``; True at once if the caller is gone."""
    look_every_s = _LOOK_EVERY_S if is_over else math.inf
    poll = select.poll()
    process = os.pidfd_open(cell)
    poll.register(process, select.POLLIN)
    poll.register(0, 0)
    events: list[tuple[int, int]] = []
    while not events and (rest_s := deadline - time.monotonic()) > 0:
        events = poll.poll(min(rest_s, look_every_s) * 1000)
        if is_over and is_over():
            break
    os.close(process)
    return any(descriptor == 0 for descriptor, _ in events)


def _reply(report: bytes) -> dict[str, Any]:
    report, *faults = report.split(BROKEN)
    if report.count(STARTED) == 2 and not faults:
        report, _, failure = report.partition(FAILED)
        if failure:
            return {"failure": failure.decode()}
        output = report.translate(None, STARTED + PASSED).decode()
        return {"passed": PASSED in report, "output": output}
    reason = faults[0].decode() if faults else "it ended before it began"
    return {"error": f"the sandbox could not run a program: {reason}"}


def answer(reply: dict[str, Any]) -> None:
    try:
        caller.sendall(json.dumps(reply).encode() + b"\n")
    except ConnectionError:  # the caller is gone, as after Ctrl-C
        os._exit(1)


def main() -> None:
    try:
        server = Server(*sys.argv[1:])
    except (OSError, ImportError) as error:
        answer({"error": str(error)})
        return
    answer({"missing": server.missing, "landlock": server.landlock})
    server.serve()


if __name__ == "__main__":
    main()
