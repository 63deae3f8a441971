"""The processes of one run, all of which end with the first.

    the server
      the cell              gives up its rights and enters namespaces
        its keeper          the first process of the cell's PID namespace
          the checker       cannot be seen by
          the program       which is alone in a PID namespace of its own

Without namespaces the cell is its own keeper.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from . import Limits, file_rules, folder, namespaces, system
from .checking import check, serve

STARTED, PASSED, BROKEN, FAILED = b"\x01", b"\x02", b"\x03", b"\x04"
"""Marks of a report: one of the two processes is ready; the checker has found no fault, and its
output follows; a fault of ours follows; why the two cannot be judged by literals follows."""

CHECKER_USER, PROGRAM_USER = 65533, 65534
"""Neither owns anything. Two, so that without namespaces the program cannot touch the checker."""


@dataclass(frozen=True)
class Cell:
    """One run: its pipes, its limits, and what this machine has against hostile programs. The
    checker's source never enters the program's memory."""

    program: int
    checker: int
    report: int
    limits: Limits
    names_may_shadow: bool
    system_call_filter: bytes
    """Empty where there is none."""
    folder: str | None
    """Where to work without namespaces; None with them."""
    has_file_rules: bool

    def enter(self, *, server: int) -> NoReturn:
        """Become the cell, and end with its checker. Faults of ours are reported."""
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
            os.setsid()  # a signal to its own group is to reach nobody but itself
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
        """Give up what is neither the program's nor the checker's business."""
        if self.folder is not None:
            os.chdir(folder.work_of(self.folder))
            return
        namespaces.mount_empty_tmp(self.limits.disk_mib)
        if os.geteuid() == 0:
            _become(PROGRAM_USER)
        # Without a map of users this gives no right over anything outside, and takes all others.
        system.call("unshare", system.CLONE_NEWUSER | system.CLONE_NEWPID | system.CLONE_NEWIPC)

    def _confine(self, user: int) -> None:
        """Take all rights from this process, for good, before it runs code that is not ours."""
        try:
            _limit(self.limits)
            system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
            # A huge page of which all but a part was given back counts as that part.
            system.prctl(system.PR_SET_THP_DISABLE, 1)
            if self.folder is None:
                system.drop_capabilities()
            else:
                _confine_to_folder(self.folder, user, has_rules=self.has_file_rules)
                folder.keep_removed(self.folder)
            _end_with_parent()  # only now: a change of the user undoes it
            if self.system_call_filter:
                system.filter_system_calls(self.system_call_filter)
            os.write(self.report, STARTED)
        except OSError as error:
            os.write(self.report, BROKEN + str(error).encode())
            raise


def _start(work: Callable[[], None]) -> int:
    """A child process that does ``work`` and ends, whatever happens."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    finally:
        os._exit(0)


def _confine_to_folder(place: str, user: int, *, has_rules: bool) -> None:
    os.environ["TMPDIR"] = folder.work_of(place)
    library = os.open(os.path.dirname(os.__file__), os.O_PATH)
    if has_rules:
        file_rules.restrict(
            readable=[*namespaces.library_folders(), "/dev/urandom"],
            writable=[place, "/dev/null"],
        )
    if os.geteuid() == 0:
        _become(user)
        _import_from(library)


def _import_from(library: int) -> None:
    """Reach Python's library by a descriptor: its path may lie in root's closed home."""
    system.prctl(system.PR_SET_DUMPABLE, 1)  # otherwise /proc/self/fd is root's alone
    place = f"/proc/self/fd/{library}"
    if not os.access(f"{place}/os.py", os.R_OK):
        raise PermissionError(
            "without namespaces root's programs run as a user without rights, who cannot read "
            f"Python's library at {os.path.dirname(os.__file__)}; install Python where all users "
            "can read it, or run as another user"
        )
    packages = namespaces.package_folders()
    sys.path[:] = [place, f"{place}/lib-dynload", *packages]


def _limit(limits: Limits) -> None:
    values = {
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_AS: limits.memory_mib << 20,
        resource.RLIMIT_NPROC: limits.num_processes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.disk_mib << 20,
        resource.RLIMIT_SIGPENDING: 2 * limits.open_files,  # timers, of which a user has so many
        # Trap: with 0 the kernel still starts what the machine pipes its core dumps to.
        resource.RLIMIT_CORE: 1,
    }
    for kind, value in values.items():
        hard = resource.getrlimit(kind)[1]  # nobody may raise it
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    os.nice(5)  # below the server, which has to stop it


def _become(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _continue_in_child() -> None:
    """Go on in a new child process, and end this one when that one ends."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)


def _end_with_parent() -> None:
    system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)


def _keep_only(*descriptors: int) -> None:
    """Close all others; input is empty, output goes nowhere."""
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
