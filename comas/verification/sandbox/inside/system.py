"""Kernel functions that Python does not offer."""

import ctypes
import os
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_THP_DISABLE = 22, 2, 41
_FILTER_INSTRUCTION_BYTES = 8
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> int:
    """Call a function of the C library; raises OSError if it returns -1."""
    result = getattr(_libc, name)(*arguments)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


class _FilterProgram(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("num_instructions", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def prctl(option: int, value: int) -> None:
    call("prctl", option, value, 0, 0, 0)


def filter_system_calls(instructions: bytes) -> None:
    """Apply a seccomp filter (BPF) to this process and its children. Needs no_new_privs."""
    program = _FilterProgram(len(instructions) // _FILTER_INSTRUCTION_BYTES, instructions)
    call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)


def drop_capabilities() -> None:
    """Drop all capabilities in the process's own namespaces."""
    call("capset", (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)())
