"""seccomp: the kernel refuses the system calls that no Python program needs.

All others are allowed: threads, child processes and files work as usual.
"""

import errno
import fcntl
import os
import resource
import socket
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from comas.verification.sandbox.inside import system

_CALLS = yaml.safe_load(Path(__file__).with_name("system_calls.yaml").read_text(encoding="utf-8"))
""""always" or "without namespaces" -> reason -> names of the refused calls."""
NEW_NAMESPACES = [flag for name, flag in vars(system).items() if name.startswith("CLONE_NEW")]
"""Flags of clone."""

_OPENINGS = (("open", 1), ("openat", 2))
_O_TMPFILE = os.O_TMPFILE & ~os.O_DIRECTORY
_F_SETOWN_EX, _F_SETPIPE_SZ, _PR_SET_THP_DISABLE, _PR_SCHED_CORE = 15, 1031, 41, 62
_RENAME_NOREPLACE, _AT_REMOVEDIR = 1, 0x200
_INT, _SOCKET_KIND, _IOCTL_KIND, _OF_SOCKETS = 0xFFFFFFFF, 0xF, 0xFFFFFF00, 0x8900
REFUSED_ARGUMENTS = [
    *(("clone", 0, flag, flag) for flag in NEW_NAMESPACES),
    # Only cell.py may set the limit on core dumps.
    ("setrlimit", 0, _INT, resource.RLIMIT_CORE),
    ("prlimit64", 1, _INT, resource.RLIMIT_CORE),
    ("prctl", 0, _INT, _PR_SET_THP_DISABLE),
    ("fcntl", 1, _INT, _F_SETPIPE_SZ),  # all pipes of a user share one bound
]
REFUSED_ARGUMENTS_WITHOUT_NAMESPACES = [
    # A changed file could signal other processes, or make them wait.
    *(("fcntl", 1, _INT, command) for command in (fcntl.F_SETOWN, _F_SETOWN_EX, fcntl.F_SETSIG)),
    *(("fcntl", 1, _INT, command) for command in (fcntl.F_SETLEASE, fcntl.F_NOTIFY)),
    # Any socket tells the machine's addresses, and signals its owner.
    ("ioctl", 1, _IOCTL_KIND, _OF_SOCKETS),
    ("prctl", 0, _INT, _PR_SCHED_CORE),
    # A datagram can go to any socket, not only to the sender's pair.
    *(("socketpair", 1, _SOCKET_KIND, kind) for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW)),
    *((call, index, _O_TMPFILE, _O_TMPFILE) for call, index in _OPENINGS),
    # A file opened to read can be emptied; one opened for neither needs no right of Landlock.
    *((call, index, os.O_TRUNC | os.O_ACCMODE, os.O_TRUNC) for call, index in _OPENINGS),
    *((call, index, os.O_ACCMODE, os.O_ACCMODE) for call, index in _OPENINGS),
]
"""(call, index of an argument, mask, refused value of the masked bits). The kernel itself ignores
the upper half of an int."""
ALLOWED_ARGUMENT = [("prlimit64", 0, 0)]  # of the process itself
ALLOWED_ARGUMENT_WITHOUT_NAMESPACES = [
    ("unlinkat", 2, _AT_REMOVEDIR),
    ("renameat2", 4, _RENAME_NOREPLACE),
    ("sendto", 4, 0),  # to no address
    ("socketpair", 0, socket.AF_UNIX),
]
"""(call, index of an argument, the only allowed value)."""
_BINARY_TREE = 2
"""Order of the instructions: the kernel tries a new filter on every call, which a list makes slow.
"""
_UNKNOWN_CALLS = range(452, 512)
"""Calls of Linux 6.6 and later, which no C library needs."""


@cache
def compile_filter(*, has_namespaces: bool) -> bytes:
    """Return the filter as instructions for the kernel (BPF), compiled by libseccomp.

    has_namespaces: if False, calls that reach beyond the program's own processes and folder are
        refused as well.

    Raises RuntimeError with the remedy if a library is missing.
    """
    seccomp = _load_library()
    filtering = seccomp.SyscallFilter(seccomp.ALLOW)
    with suppress(OSError):  # libseccomp before 2.5 has no tree
        filtering.set_attr(seccomp.Attr.CTL_OPTIMIZE, _BINARY_TREE)
    refusal, unknown = seccomp.ERRNO(errno.EPERM), seccomp.ERRNO(errno.ENOSYS)
    groups, allowed = [*_CALLS["always"].values()], [*ALLOWED_ARGUMENT]
    refused = [*REFUSED_ARGUMENTS]
    # A filter cannot see their arguments; the C library falls back to other calls.
    hidden = ["clone3"]
    if not has_namespaces:
        groups += _CALLS["without namespaces"].values()
        refused += REFUSED_ARGUMENTS_WITHOUT_NAMESPACES
        allowed += ALLOWED_ARGUMENT_WITHOUT_NAMESPACES
        hidden += ["openat2"]
    for name in " ".join(groups).split():
        number = seccomp.resolve_syscall(seccomp.Arch.NATIVE, name)
        if number != -1:  # unknown to this version of libseccomp
            filtering.add_rule(refusal, number)
    for name, index, mask, value in refused:
        filtering.add_rule(refusal, name, seccomp.Arg(index, seccomp.MASKED_EQ, mask, value))
    for name, index, value in allowed:
        filtering.add_rule(refusal, name, seccomp.Arg(index, seccomp.NE, value))
    for call in (*hidden, *_UNKNOWN_CALLS):
        filtering.add_rule(unknown, call)
    with tempfile.TemporaryFile() as file:
        filtering.export_bpf(file)
        file.seek(0)
        return file.read()


def _load_library() -> Any:
    try:
        import pyseccomp
    except ImportError as error:
        raise RuntimeError("pyseccomp is missing: pip install pyseccomp") from error
    except RuntimeError as error:
        raise RuntimeError("libseccomp is missing: apt-get install libseccomp2") from error
    return pyseccomp
