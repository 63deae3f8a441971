"""The caller's side of the sandbox: starts the server and sends it programs."""

import dataclasses
import json
import logging
import select
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from comas.verification.sandbox.inside import HEADER_BYTES, Limits
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
"""(missing protection, whether there are namespaces) -> the consequence, and the remedy."""

Isolation = Literal["require_namespaces", "allow_degraded"]
"""What to do if the machine cannot isolate programs by namespaces."""


class SandboxError(RuntimeError):
    """The sandbox itself failed, which says nothing about the program."""


class LiteralsError(ValueError):
    """A program cannot be judged, because more than literals would cross to or from its checker."""


class ProgramError(RuntimeError):
    """A program exceeded its limits or raised: its output with the error."""


class Sandbox:
    """Runs programs one after the other, in a server that starts with the first one.

    Its methods may be called from any thread.
    """

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
        self._server: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def run(self, program: str, *, checker: str, names_may_shadow: bool = False) -> bool:
        """True if ``program`` loads and ``checker`` then ends without an exception, in a process of
        its own, with the program's names as globals and in the module ``solution``;
        ``names_may_shadow`` puts them before builtins and standard modules.

        Raises LiteralsError if the two would exchange more than literals, SandboxError if the
        sandbox itself fails; the next call restarts it.
        """
        reply = self._run(program, checker, names_may_shadow)
        if "failure" in reply:
            raise LiteralsError(f"{reply['failure']}, and only literals can be exchanged")
        return reply["passed"]

    def output_of(self, program: str) -> str:
        """The last ``MAX_OUTPUT_CHARS`` characters that ``program`` prints. Raises ProgramError
        with them if it raises, or if it exceeds its limits; SandboxError as ``run`` does.
        """
        reply = self._run(_PRINTING.format(program=program), _OUTPUT, False)
        if not reply.get("passed"):
            raise ProgramError("the program died, or was over its limits")
        said, failed = json.loads(reply["output"])
        if failed:
            raise ProgramError(said)
        return said

    def start(self) -> bool:
        """Start the server; True if namespaces isolate programs.

        Raises SandboxError if it fails, or requires namespaces that the machine does not have.
        """
        with self._lock:
            self._started()
        return self._isolated

    def close(self) -> None:
        """End the server with any program in it."""
        with self._lock:
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self, program: str, checker: str, names_may_shadow: bool) -> dict[str, Any]:
        with self._lock:
            try:
                reply = self._ask(self._started(), program, checker, names_may_shadow)
            except SandboxError:
                self._stop()
                raise
        if "error" in reply:
            raise SandboxError(reply["error"])
        return reply

    def _ask(
        self, server: subprocess.Popen[bytes], program: str, checker: str, names_may_shadow: bool
    ) -> dict[str, Any]:
        # A lone surrogate cannot be encoded; a program that contains one is not Python.
        texts = [text.encode(errors="replace") for text in (program, checker)]
        fields = {
            "program": len(texts[0]),
            "checker": len(texts[1]),
            "names_may_shadow": names_may_shadow,
            "limits": dataclasses.asdict(self._limits),
        }
        header = json.dumps(fields).encode()
        assert len(header) <= HEADER_BYTES
        assert server.stdin is not None
        try:
            server.stdin.write(header.ljust(HEADER_BYTES) + b"".join(texts))
            server.stdin.flush()
        except BrokenPipeError as error:
            raise SandboxError("the sandbox server is gone") from error
        return _receive(server, timeout_s=self._limits.wall_s + _GRACE_S)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._server is None:
            self._server = self._start()
        return self._server

    def _start(self) -> subprocess.Popen[bytes]:
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

    def _launch(self, mode: str, missing: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start a server, try an empty program, and warn of missing protections."""
        try:
            system_call_filter = compile_filter(has_namespaces=mode == "isolated")
        except RuntimeError as error:
            system_call_filter = b""
            missing = missing | {"seccomp": str(error)}
        server = _popen(mode, system_call_filter.hex(), preload=self._preload)
        try:
            hello = _receive(server, timeout_s=_GRACE_S if self._preload is None else _PRELOAD_S)
            if "error" in hello:
                raise SandboxError(hello["error"])
            reply = self._ask(server, "", "", False)
            if not reply.get("passed"):
                raise SandboxError(reply.get("error", "an empty program is over the limits"))
        except SandboxError:
            _end(server)
            raise
        missing |= hello["missing"]
        _warn_of_what_is_missing(missing, landlock=hello["landlock"], isolated=mode == "isolated")
        return server

    def _stop(self) -> None:
        if self._server is not None:
            _end(self._server)
            self._server = None


def _popen(*arguments: str, preload: Path | None) -> subprocess.Popen[bytes]:
    preloaded = [] if preload is None else [str(preload), sysconfig.get_path("purelib")]
    return subprocess.Popen(
        # Not -I, which would ignore the hash seed that makes verdicts reproducible.
        [sys.executable, "-s", "-S", "-P", "-B", "-m", "inside", *arguments, *preloaded],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # One thread, since a process with several cannot be forked safely.
        env={"PYTHONHASHSEED": "0", "PYTHONPATH": str(_FOLDER), "OPENBLAS_NUM_THREADS": "1"},
        cwd="/",
        start_new_session=True,
    )


def _end(server: subprocess.Popen[bytes]) -> None:
    assert server.stdin is not None and server.stdout is not None
    # At the end of its input the server kills a running program and exits.
    with suppress(BrokenPipeError):  # it is gone, with input still unread
        server.stdin.close()
    server.stdout.close()
    try:
        server.wait(timeout=5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _receive(server: subprocess.Popen[bytes], *, timeout_s: float) -> dict[str, Any]:
    assert server.stdout is not None
    readable, _, _ = select.select([server.stdout], [], [], timeout_s)
    line = server.stdout.readline() if readable else b""
    if not line:
        state = "ended" if readable else f"gave no reply within {timeout_s:.0f} s"
        raise SandboxError(f"the sandbox server {state}")
    return json.loads(line)


def _warn_of_what_is_missing(
    missing: Mapping[str, str], *, landlock: int | None, isolated: bool
) -> None:
    """``missing``: protection -> why this machine lacks it; ``landlock``: its version."""
    faults = [f"no {name} ({why}): {_OPENED[name, isolated]}" for name, why in missing.items()]
    if landlock is not None:
        faults.append(
            f"Landlock has version {landlock}: it does not cover modes, owners and times of files, "
            "emptying them (before version 3), TCP (before 4) or signals (before 6), which are "
            "left to seccomp; no version hides whether a file exists, its size and its age"
        )
    if faults:
        log.warning("model-written programs are not fully contained here: %s", "; ".join(faults))
