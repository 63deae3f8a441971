"""Containment without namespaces: Landlock, a folder as the disk, and an end to every process.

Landlock: https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import errno
import itertools
import os
import signal
import stat
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from . import system

SYS_CREATE_RULESET, SYS_ADD_RULE, SYS_RESTRICT_SELF = 444, 445, 446
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEVICE = 1 << 14, 1 << 15
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
"""Rights for files; the others are for folders."""
_NUM_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Version of Landlock -> number of file rights it knows; 16 from version 5 on."""
_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
MAX_ENTRIES = 200
"""Files and folders allowed: on a busy disk a thousand take seconds to remove."""
_CURRENT, _NOREPLACE = -100, 1
"""Flags of renameat2: relative to the current folder; fail if the target exists."""
_WITHIN_S = 10.0
"""A killed process takes a moment to free its memory, and longer on a busy machine."""
_LOOK_EVERY_S = 0.0005


def version() -> int:
    """Return the version of Landlock; raises OSError if the kernel has none."""
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
    rule = struct.pack("=Qi", rights if os.path.isdir(path) else rights & _OF_FILES, place)
    system.call("syscall", SYS_ADD_RULE, rules, RULE_PATH_BENEATH, rule, 0)
    os.close(place)


# ---------------------------------------------------------------- the folder


def make_folder() -> str:
    """Make a folder with two parts: the program's (``work_of``), and one for removed files."""
    folder = f"/tmp/comas-sandbox-{os.urandom(8).hex()}"
    os.mkdir(folder)
    for part in (work_of(folder), _removed_of(folder)):
        os.mkdir(part)
        os.chmod(part, 0o1777)  # if the server is root, its programs are not
    return folder


def work_of(folder: str) -> str:
    """Return the part of a folder that the program sees."""
    return f"{folder}/work"


def _removed_of(folder: str) -> str:
    return f"{folder}/removed"


def keep_removed(folder: str) -> None:
    """Make ``os.remove`` and ``os.rename`` move aside what they would remove.

    An open file without a name escapes the count of the disk, so the system call filter allows
    nothing but moving a file to a name that does not exist.
    """
    numbers = itertools.count()

    def remove(path: Any, *, dir_fd: int | None = None) -> None:
        if stat.S_ISDIR(os.lstat(path, dir_fd=dir_fd).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        _move(path, f"{_removed_of(folder)}/{os.getpid()}.{next(numbers)}", dir_fd)

    def rename(old: Any, new: Any) -> None:
        os.lstat(old)  # raises before anything is removed
        if os.path.lexists(new):
            remove(new)
        _move(old, new, None)

    os.remove = os.unlink = remove  # type: ignore[assignment]
    os.rename = os.replace = rename  # type: ignore[assignment]


def _move(old: Any, new: Any, folder_of_old: int | None) -> None:
    place = _CURRENT if folder_of_old is None else folder_of_old
    names = os.fsencode(old), os.fsencode(new)
    system.call("renameat2", place, names[0], _CURRENT, names[1], _NOREPLACE)


def is_over(folder: str, disk_mib: int) -> bool:
    """Return True if a folder holds too much, or anything that cannot be counted."""
    num_entries = num_bytes = 0
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    num_entries += 1
                    num_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
                    if num_entries > MAX_ENTRIES or num_bytes > disk_mib << 20:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except FileNotFoundError:  # removed meanwhile
            continue
        except OSError:  # closed to us, or nested too deeply for a path
            return True
    return False


def remove_folder(folder: str) -> None:
    """Remove a folder with all its content, including closed and deeply nested folders."""
    silence = (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0)
    # Not by subprocess, which would make every later fork slower.
    for command in (["/bin/chmod", "-R", "u+rwx"], ["/bin/rm", "-rf"]):
        arguments = [*command, "--", folder]
        os.waitpid(os.posix_spawn(command[0], arguments, {}, file_actions=[silence]), 0)


# ---------------------------------------------------------------- processes


def end_tree() -> None:
    """Kill and reap every descendant: as their subreaper this process inherits the orphans. Raises
    OSError if any is left after ``_WITHIN_S``."""
    deadline = time.monotonic() + _WITHIN_S
    while not _has_reaped_all():
        # A killed process with much memory keeps its children for a while, and these fork on
        # unseen until they are orphans. So all are stopped first.
        tree: set[int] = set()
        while (found := _descendants()) - tree:
            _signal(found - tree, signal.SIGSTOP)
            tree |= found
        _signal(tree, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise OSError("the processes of a program do not end")
        time.sleep(_LOOK_EVERY_S)


def _has_reaped_all() -> bool:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return False
    return True


def _signal(processes: set[int], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _descendants() -> set[int]:
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        with suppress(FileNotFoundError, ProcessLookupError):  # it is gone: its children are ours
            for thread in os.listdir(f"/proc/{process}/task"):  # each has its own children
                with open(f"/proc/{process}/task/{thread}/children") as file:
                    new = {int(child) for child in file.read().split()} - found
                found |= new
                waiting += new
    return found
