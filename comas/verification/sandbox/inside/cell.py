"""The processes of one run; all end with the cell.

server
  cell           gives up its rights and enters namespaces
    keeper       the first process of the cell's PID namespace; without namespaces, the cell
      checker    invisible to the program
      program    alone in a PID namespace of its own
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from . import Limits, bare, namespaces, system
from .checking import check, serve

STARTED, PASSED, BROKEN, FAILED = b"\x01", b"\x02", b"\x03", b"\x04"
"""Marks in a report: one of the two processes is ready; the checker passed, and its output follows;
an error of the sandbox follows; the reason why literals do not suffice follows."""

CHECKER_USER, PROGRAM_USER = 65533, 65534
"""Neither owns anything; they differ to keep programs without namespaces from the checker."""


@dataclass(frozen=True)
class Cell:
    """One run: its pipes, its limits, and the protections that this machine has. The checker's
    source never enters the program's memory."""

    program: int
    checker: int
    report: int
    limits: Limits
    names_may_shadow: bool
    system_call_filter: bytes
    """Empty if the machine has none."""
    folder: str | None
    """The working folder without namespaces; None with them."""
    has_file_rules: bool

    def enter(self, *, server: int) -> NoReturn:
        """Become the cell, and end with its checker."""
        _keep_only(self.program, self.checker, self.report)
        try:
            os.setsid()
            self._leave_the_rest_behind()
            _end_with_parent()
            if self.folder is None:
                _continue_in_child()
                _end_with_parent()
            elif os.getppid() != server:
                os._exit(1)
            checker = self._start_both()
        except OSError as error:
            os.write(self.report, BROKEN + str(error).encode())
            os._exit(1)
        _keep_only()
        os.waitpid(checker, 0)
        os._exit(0)

    def _start_both(self) -> int:
        """Start the checker's process and the program's; returns the checker's."""
        program_in, checker_out = os.pipe()
        checker_in, program_out = os.pipe()

        def be_checker() -> None:
            _keep_only(self.checker, self.report, checker_in, checker_out)
            self._confine(CHECKER_USER)
            output = check(
                _read_all(self.checker),
                names_may_shadow=self.names_may_shadow,
                source=checker_in,
                sink=checker_out,
                fail=self._fail,
            )
            os.write(self.report, PASSED + json.dumps(output).encode())

        def be_program() -> None:
            _keep_only(self.program, self.report, program_in, program_out)
            os.setsid()  # so that a signal to its group reaches only itself
            self._confine(PROGRAM_USER)
            os.close(self.report)
            serve(_read_all(self.program), source=program_in, sink=program_out)

        checker = _start(be_checker)
        if self.folder is None:
            system.call("unshare", system.CLONE_NEWPID | system.CLONE_NEWIPC)
        _start(be_program)
        return checker

    def _fail(self, reason: str) -> NoReturn:
        """End the checker without a verdict."""
        os.write(self.report, FAILED + reason.encode())
        os._exit(0)

    def _leave_the_rest_behind(self) -> None:
        if self.folder is not None:
            os.chdir(bare.work_of(self.folder))
            return
        namespaces.mount_empty_tmp(self.limits.disk_mib)
        if os.geteuid() == 0:
            _become(PROGRAM_USER)
        # Without a user map this takes all rights and grants none outside.
        system.call("unshare", system.CLONE_NEWUSER | system.CLONE_NEWPID | system.CLONE_NEWIPC)

    def _confine(self, user: int) -> None:
        """Drop all rights of this process, before it runs foreign code."""
        try:
            _limit(self.limits)
            system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
            # A partly freed huge page would count as its remaining part alone.
            system.prctl(system.PR_SET_THP_DISABLE, 1)
            if self.folder is None:
                system.drop_capabilities()
            else:
                _confine_to_folder(self.folder, user, has_rules=self.has_file_rules)
                bare.keep_removed(self.folder)
            _end_with_parent()  # after the change of the user, which undoes it
            if self.system_call_filter:
                system.filter_system_calls(self.system_call_filter)
            os.write(self.report, STARTED)
        except OSError as error:
            os.write(self.report, BROKEN + str(error).encode())
            raise


def _start(work: Callable[[], None]) -> int:
    """Start a child process that does ``work`` and exits, whatever happens."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    finally:
        os._exit(0)


def _confine_to_folder(place: str, user: int, *, has_rules: bool) -> None:
    os.environ["TMPDIR"] = bare.work_of(place)
    library = os.open(os.path.dirname(os.__file__), os.O_PATH)
    if has_rules:
        bare.restrict(
            readable=[*namespaces.library_folders(), "/dev/urandom"], writable=[place, "/dev/null"]
        )
    if os.geteuid() == 0:
        _become(user)
        _import_from(library)


def _import_from(library: int) -> None:
    """Reach Python's library by a descriptor, since its path may be in root's closed home."""
    system.prctl(system.PR_SET_DUMPABLE, 1)  # otherwise only root can read /proc/self/fd
    place = f"/proc/self/fd/{library}"
    if not os.access(f"{place}/os.py", os.R_OK):
        raise PermissionError(
            "without namespaces, programs started by root run as a user without rights, who cannot "
            f"read Python's library at {os.path.dirname(os.__file__)}; install Python where all "
            "users can read it, or run as another user"
        )
    sys.path[:] = [place, f"{place}/lib-dynload", *namespaces.package_folders()]


def _limit(limits: Limits) -> None:
    values = {
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_AS: limits.memory_mib << 20,
        resource.RLIMIT_NPROC: limits.num_processes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.disk_mib << 20,
        resource.RLIMIT_SIGPENDING: 2 * limits.open_files,  # also bounds a user's timers
        # Trap: with 0 the kernel still starts the program that core dumps are piped to.
        resource.RLIMIT_CORE: 1,
    }
    for kind, value in values.items():
        hard = resource.getrlimit(kind)[1]  # cannot be raised
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    os.nice(5)  # below the server, which must be able to stop it


def _become(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _continue_in_child() -> None:
    """Continue in a child process, with which this one ends."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)


def _end_with_parent() -> None:
    system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)


def _keep_only(*descriptors: int) -> None:
    """Close all other descriptors; standard input is empty, output is discarded."""
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    first = 3
    for descriptor in sorted(descriptors):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _read_all(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8", newline="") as file:
        return file.read()
