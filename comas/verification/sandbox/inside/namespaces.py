"""Containment by namespaces: a read-only root that holds only Python, and no network."""

import ctypes
import os
import signal
import sys
from contextlib import suppress

from . import system

MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 0x1000, 0x4000, 1 << 18
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = -100, 0x8000, 1
SYS_MOUNT_SETATTR = 442
HIDDEN = "/hidden"
"""Second mount of the installed packages, if their own place is in /tmp."""


def library_folders() -> list[str]:
    return ["/usr", "/lib", "/lib64", os.path.realpath(sys.base_prefix), *package_folders()]


def package_folders() -> list[str]:
    return [path for path in sys.path if os.path.basename(path) == "site-packages"]


def isolate() -> None:
    """Move the server into namespaces of its own; raises OSError if that is forbidden."""
    uid, gid = os.getuid(), os.getgid()
    flags = system.CLONE_NEWNS | system.CLONE_NEWNET | system.CLONE_NEWIPC | system.CLONE_NEWUTS
    system.call("unshare", flags if uid == 0 else flags | system.CLONE_NEWUSER)
    if uid:
        maps = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
        for name, content in maps.items():
            with open(f"/proc/self/{name}", "w") as file:
                file.write(content)
    _change_root()


def mount_empty_tmp(disk_mib: int) -> None:
    """Give this process and its children an empty /tmp in memory, which ends with them."""
    system.call("unshare", system.CLONE_NEWNS)
    size = f"size={disk_mib}m,nr_inodes=1000,mode=1777"
    _mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, size)
    for number, path in enumerate(_hidden_by_tmp()):
        os.makedirs(path, exist_ok=True)
        _mount(f"{HIDDEN}{number}", path, None, MS_BIND)
    os.chdir("/tmp")


def _change_root() -> None:
    """Make a tmpfs the root, with the folders that Python needs mounted into it."""
    needed = [f"{path}/" for path in (os.path.realpath(sys.base_prefix), *package_folders())]
    root = next(
        d for d in ("/tmp", "/mnt", "/media") if not any(p.startswith(f"{d}/") for p in needed)
    )
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    os.mkdir(f"{root}/tmp")
    os.mkdir(f"{root}/dev")
    os.symlink("/tmp", f"{root}/dev/shm")  # where multiprocessing keeps its locks
    for path in (*library_folders(), "/dev/null", "/dev/urandom"):
        _show(path, root)
    for number, path in enumerate(_hidden_by_tmp()):
        _show(path, root, at=f"{HIDDEN}{number}")
    os.chdir(root)
    system.call("pivot_root", b".", b".")
    system.call("umount2", b".", MNT_DETACH)  # the former root
    os.chdir("/")
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    system.call("syscall", SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attributes, size)


def _hidden_by_tmp() -> list[str]:
    """Return the folders of Python and of packages that an empty /tmp would hide."""
    return [path for path in library_folders() if path.startswith("/tmp/")]


def _show(path: str, root: str, *, at: str | None = None) -> None:
    """Mount ``path`` under ``root``, at its own path or ``at`` another."""
    place = root + (at or path)
    if os.path.exists(place) or not os.path.exists(path):
        return
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), place)
        return
    if os.path.isdir(path):
        os.mkdir(place)
    else:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY))
    _mount(path, place, None, MS_BIND | MS_REC)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    source_b, kind_b, data_b = (x.encode() if x else None for x in (source, kind, data))
    system.call("mount", source_b, target.encode(), kind_b, ctypes.c_ulong(flags), data_b)


def end(cell: int) -> None:
    """Kill and reap the cell and all others: its child is the first of their PID namespace."""
    os.kill(cell, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
