"""The caller's side of the sandbox: starts the server and sends it programs."""

import dataclasses
import json
import logging
import os
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from comas.verification.sandbox.inside import Limits
from comas.verification.sandbox.system_call_filter import compile_filter

log = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent
_GRACE_S = 30.0
"""Time that the server has beyond a program's wall limit."""
MAX_OUTPUT_CHARS = 4000
_PRINTING = """
def output():
    import contextlib, io, traceback
    said, failed = io.StringIO(), False
    with contextlib.redirect_stdout(said):
        try:
            exec(compile({program!r}, "<program>", "exec"), {{"__name__": "__main__"}})
        except BaseException as error:
            failed = True
            said.write("".join(traceback.format_exception_only(error)))
    return said.getvalue(), failed
"""
_OUTPUT = f"said, failed = output()\n__output__ = [str(said)[-{MAX_OUTPUT_CHARS}:], bool(failed)]"
_PRELOAD_S = 100.0
"""Time to start a server that imports a module."""

HOW_TO_GET_NAMESPACES = (
    "Allow unprivileged user namespaces (in a container: run it with CAP_SYS_ADMIN, or with a "
    "seccomp profile that allows unshare and mount)"
)
_OPENED = {
    ("namespaces", False): (
        "they see the machine's files and processes unless something else forbids it, and the "
        f"limit on processes counts all of their user's. {HOW_TO_GET_NAMESPACES}"
    ),
    ("seccomp", True): "they can make any system call, and so exploit kernel bugs",
    ("seccomp", False): (
        "they can reach the network (with Landlock of version 4: by UDP alone), signal their "
        "user's processes (with Landlock of version 6: none) and reschedule them, change modes, "
        "times and attributes of their user's files, and fill the disk with files that are removed"
    ),
    ("landlock", False): (
        "they can read and write what their user can. Linux 5.13 or later has it, unless it is "
        "switched off at boot"
    ),
}
"""(missing protection, whether there are namespaces) -> what programs can do, and the remedy."""

Isolation = Literal["require_namespaces", "allow_degraded"]
"""What to do if the machine cannot isolate programs by namespaces."""


class SandboxError(RuntimeError):
    """The sandbox itself failed, which says nothing about the program."""


class LiteralsError(ValueError):
    """A program cannot be judged, because more than literals would cross to or from its checker."""


class ProgramError(RuntimeError):
    """A program exceeded its limits or raised: its output with the error."""


class Sandbox(AbstractContextManager["Sandbox"]):
    """Runs programs one after the other, in a server that starts with the first one. Its methods
    may be called from any thread."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        isolated: bool = True,
        isolation: Isolation = "allow_degraded",
        preload: Path | None = None,
    ) -> None:
        """``isolated=False`` uses no namespaces, the fallback under ``allow_degraded``.
        ``preload``: a module of ours that programs may import, with all installed packages.
        """
        self._limits = limits or Limits()
        self._preload = preload
        self._isolated = isolated
        self._isolation = isolation
        self._server: _Server | None = None
        self._lock = threading.Lock()

    def run(self, program: str, *, checker: str, names_may_shadow: bool = False) -> bool:
        """Return True if ``program`` loads and ``checker`` then ends without an exception, in a
        process of its own, with the program's names as globals and in the module ``solution``;
        ``names_may_shadow`` puts them before builtins and standard modules.

        Raises LiteralsError if the two would exchange more than literals, SandboxError if the
        sandbox itself fails; the next call restarts it.
        """
        reply = self._run(program, checker, names_may_shadow)
        if "failure" in reply:
            raise LiteralsError(f"{reply['failure']}, and only literals can be exchanged")
        return reply["passed"]

    def output_of(self, program: str) -> str:
        """Return the last ``MAX_OUTPUT_CHARS`` characters that ``program`` prints. Raises
        ProgramError with them if it raises or exceeds its limits, SandboxError as ``run`` does."""
        reply = self._run(_PRINTING.format(program=program), _OUTPUT, False)
        if not reply.get("passed"):
            raise ProgramError("the program died, or was over its limits")
        said, failed = json.loads(reply["output"])
        if failed:
            raise ProgramError(said)
        return said

    def start(self) -> bool:
        """Start the server; return True if namespaces isolate programs. Raises SandboxError if it
        fails, or requires namespaces that the machine does not have."""
        with self._lock:
            self._started()
        return self._isolated

    def close(self) -> None:
        """End the server with any program in it."""
        with self._lock:
            self._stop()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self, program: str, checker: str, names_may_shadow: bool) -> dict[str, Any]:
        with self._lock:
            try:
                reply = self._started().ask(program, checker, names_may_shadow, self._limits)
            except SandboxError:
                self._stop()
                raise
        if "error" in reply:
            raise SandboxError(reply["error"])
        return reply

    def _started(self) -> "_Server":
        if self._server is None:
            self._server = self._start()
        return self._server

    def _start(self) -> "_Server":
        missing: dict[str, str] = {}
        if self._isolated:
            try:
                return self._launch("isolated", missing)
            except SandboxError as error:
                if self._isolation == "require_namespaces":
                    raise
                self._isolated = False
                missing["namespaces"] = str(error)
        return self._launch("bare", missing)

    def _launch(self, mode: str, missing: dict[str, str]) -> "_Server":
        """Start a server, try an empty program, and warn of missing protections."""
        try:
            system_call_filter = compile_filter(has_namespaces=mode == "isolated")
        except RuntimeError as error:
            system_call_filter = b""
            missing = missing | {"seccomp": str(error)}
        server = _Server(mode, system_call_filter.hex(), preload=self._preload)
        try:
            hello = server.receive(timeout_s=_GRACE_S if self._preload is None else _PRELOAD_S)
            if "error" in hello:
                raise SandboxError(hello["error"])
            reply = server.ask("", "", False, self._limits)
            if not reply.get("passed"):
                raise SandboxError(reply.get("error", "an empty program is over the limits"))
        except SandboxError:
            server.end()
            raise
        missing |= hello["missing"]
        _warn_of_what_is_missing(missing, landlock=hello["landlock"], isolated=mode == "isolated")
        return server

    def _stop(self) -> None:
        if self._server is not None:
            self._server.end()
            self._server = None


class _Server:
    """The server's process, and the socket that connects us (``inside/__main__.py``)."""

    def __init__(self, mode: str, system_call_filter: str, *, preload: Path | None) -> None:
        preloaded = [] if preload is None else [str(preload), sysconfig.get_path("purelib")]
        arguments = [mode, system_call_filter, *preloaded]
        self._socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                # Not -I, which would ignore the hash seed that makes verdicts reproducible.
                [sys.executable, "-s", "-S", "-P", "-B", "-m", "inside", *arguments],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                # One thread, since a process with several cannot be forked safely.
                env={
                    "PYTHONHASHSEED": "0",
                    "PYTHONPATH": str(_FOLDER),
                    "OPENBLAS_NUM_THREADS": "1",
                },
                cwd="/",
                start_new_session=True,
            )
        self._replies = self._socket.makefile("rb")

    def ask(
        self, program: str, checker: str, names_may_shadow: bool, limits: Limits
    ) -> dict[str, Any]:
        """Have a program run, and return the reply."""
        request = {"names_may_shadow": names_may_shadow, "limits": dataclasses.asdict(limits)}
        files = [os.fdopen(os.memfd_create("text"), "w+b") for _ in range(2)]
        for file, text in zip(files, (program, checker), strict=True):
            # A lone surrogate cannot be encoded; a program that contains one is not Python.
            file.write(text.encode(errors="replace"))
            file.seek(0)
        try:
            message = [json.dumps(request).encode()]
            socket.send_fds(self._socket, message, [file.fileno() for file in files])
        except OSError as error:
            raise SandboxError("the sandbox server is gone") from error
        finally:
            for file in files:
                file.close()
        return self.receive(timeout_s=limits.wall_s + _GRACE_S)

    def receive(self, *, timeout_s: float) -> dict[str, Any]:
        """Wait for a line of JSON. Raises SandboxError if none comes."""
        self._socket.settimeout(timeout_s)
        try:
            line = self._replies.readline()
        except TimeoutError as error:
            raise SandboxError(
                f"the sandbox server gave no reply within {timeout_s:.0f} s"
            ) from error
        except ConnectionError:
            line = b""
        if not line:
            raise SandboxError("the sandbox server ended")
        return json.loads(line)

    def end(self) -> None:
        """Close the socket, at whose end the server kills a running program and exits."""
        self._replies.close()
        self._socket.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _warn_of_what_is_missing(
    missing: Mapping[str, str], *, landlock: int | None, isolated: bool
) -> None:
    """``missing``: protection -> why this machine lacks it; ``landlock``: its version."""
    faults = [f"no {name} ({why}): {_OPENED[name, isolated]}" for name, why in missing.items()]
    if landlock is not None:
        faults.append(
            f"Landlock has version {landlock}: modes, owners and times of files, emptying them "
            "(before version 3), TCP (before 4) and signals (before 6) are left to seccomp; "
            "no version hides whether a file exists, its size and its age"
        )
    if faults:
        log.warning("model-written programs are not fully contained here: %s", "; ".join(faults))
