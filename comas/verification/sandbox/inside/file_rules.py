"""Landlock: restricts the files that a process may open, where no namespaces hide them.

Source: https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import os
from collections.abc import Iterable

from . import system

SYS_CREATE_RULESET, SYS_ADD_RULE, SYS_RESTRICT_SELF = 444, 445, 446
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEVICE = 1 << 14, 1 << 15
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
"""The other rights apply to folders."""
_NUM_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Version of the interface -> number of file rights it knows; 16 from version 5 on."""
_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """The version of the interface; raises OSError if the kernel has none."""
    return system.call("syscall", SYS_CREATE_RULESET, None, 0, CREATE_RULESET_VERSION)


def restrict(*, readable: Iterable[str], writable: Iterable[str]) -> None:
    """Let this process and its children open only files beneath these folders, and deny TCP and
    signals if the kernel's version can. Needs no_new_privs. Raises OSError without Landlock."""
    supported = version()
    files = (1 << _NUM_FILE_RIGHTS.get(supported, 16)) - 1
    network = _BIND_TCP | _CONNECT_TCP if supported >= 4 else 0
    scope = _ABSTRACT_SOCKETS | _SIGNALS if supported >= 6 else 0
    attributes = (ctypes.c_uint64 * 3)(files, network, scope)
    # An older kernel takes a longer structure than it knows only if the rest is zero.
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    rules = system.call("syscall", SYS_CREATE_RULESET, attributes, size, 0)
    for path in readable:
        _allow(rules, path, EXECUTE | READ_FILE | READ_DIR)
    for path in writable:
        _allow(rules, path, files)
    system.call("syscall", SYS_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    if not os.path.exists(path):
        return
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = _PathBeneath(rights if os.path.isdir(path) else rights & _OF_FILES, place)
    system.call("syscall", SYS_ADD_RULE, rules, RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    os.close(place)
