"""A program's folder where it has no /tmp of its own, for lack of namespaces."""

import errno
import itertools
import os
import stat
from typing import Any

from . import system

MAX_ENTRIES = 200
"""Files and folders allowed: on a busy disk a thousand take seconds to remove."""
_CURRENT, _NOREPLACE = -100, 1
"""Flags of renameat2: relative to the current folder; fail if the target exists."""


def make() -> str:
    """Make a folder with two parts: ``work_of``, and one for what is removed from there."""
    folder = f"/tmp/comas-sandbox-{os.urandom(8).hex()}"
    os.mkdir(folder)
    for part in (work_of(folder), _removed_of(folder)):
        os.mkdir(part)
        os.chmod(part, 0o1777)  # if the server is root, its programs are not
    return folder


def work_of(folder: str) -> str:
    """The part that the program sees."""
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
    """True if it holds too much, or anything that cannot be counted."""
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


def remove(folder: str) -> None:
    """Remove it with all its content, including closed and deeply nested folders."""
    silence = (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0)
    # Not by subprocess, which would make every later fork slower.
    for command in (["/bin/chmod", "-R", "u+rwx"], ["/bin/rm", "-rf"]):
        arguments = [*command, "--", folder]
        os.waitpid(os.posix_spawn(command[0], arguments, {}, file_actions=[silence]), 0)
