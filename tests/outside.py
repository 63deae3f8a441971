"""A process, files, listeners, a terminal, memory, messages, semaphores, as open as they can be.

All belong to the user that the programs run as: to those of any other they would be closed anyway.
"""

import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

_libc = ctypes.CDLL(None, use_errno=True)
_libc.shmat.restype = ctypes.c_void_p
_IPC_PRIVATE, _IPC_RMID, _IPC_STAT, _SEGMENT_BYTES = 0, 0, 2, 4096
_STATE_BYTES = 256
"""More than the kernel says of a message queue or of semaphores."""
_SYS_IOPRIO_GET = 252
_ABSTRACT = "\0comas-outside-{}"


class Outside:
    """Where things are, and what has become of them."""

    def __init__(self, stack: ExitStack, user: int) -> None:
        self._folder = tempfile.mkdtemp(prefix="comas-outside-")
        stack.callback(shutil.rmtree, self._folder)
        self._file = f"{self._folder}/file"
        Path(self._file).write_text("#!/bin/true\n")
        os.chmod(self._file, 0o777)
        self._empty = f"{self._folder}/empty"
        os.mkdir(self._empty)
        os.chmod(self._empty, 0o777)
        for path in (self._file, self._folder, self._empty):
            os.chown(path, user, -1)
        process = _start_process(user)
        stack.callback(process.wait)
        stack.callback(process.kill)
        self._process = process.pid
        self._listeners = [
            stack.enter_context(_listener(socket.AF_UNIX, socket.SOCK_DGRAM, f"{self._folder}/d")),
            stack.enter_context(_listener(socket.AF_UNIX, socket.SOCK_STREAM, f"{self._folder}/s")),
            stack.enter_context(
                _listener(socket.AF_UNIX, socket.SOCK_DGRAM, _ABSTRACT.format(os.getpid()))
            ),
            stack.enter_context(_listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))),
            stack.enter_context(_listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))),
        ]
        os.chmod(self._folder, 0o777)
        self._segment = _libc.shmget(_IPC_PRIVATE, _SEGMENT_BYTES, 0o666)
        stack.callback(_libc.shmctl, self._segment, _IPC_RMID, None)
        self._memory = _libc.shmat(self._segment, None, 0)
        stack.callback(_libc.shmdt, ctypes.c_void_p(self._memory))
        self._queue = _libc.msgget(_IPC_PRIVATE, 0o666)
        stack.callback(_libc.msgctl, self._queue, _IPC_RMID, None)
        self._semaphores = _libc.semget(_IPC_PRIVATE, 2, 0o666)
        stack.callback(_libc.semctl, self._semaphores, 0, _IPC_RMID)
        self._messages = f"/comas-outside-{os.getpid()}"
        self._open_messages = _libc.mq_open(
            self._messages.encode(), os.O_CREAT | os.O_RDWR | os.O_NONBLOCK, 0o666, None
        )
        stack.callback(_libc.mq_unlink, self._messages.encode())
        self._terminal = os.openpty()
        for descriptor in (self._open_messages, self._terminal[1]):
            os.fchmod(descriptor, 0o666)
            os.fchown(descriptor, user, -1)
        for descriptor in (self._open_messages, *self._terminal):
            stack.callback(os.close, descriptor)

    def names(self) -> str:
        datagram, stream, abstract, udp, tcp = (s.getsockname() for s in self._listeners)
        names = {
            "PROCESS": self._process,
            "FOLDER": self._folder,
            "FILE": self._file,
            "DATAGRAM": datagram,
            "STREAM": stream,
            "ABSTRACT": abstract,
            "UDP": udp[1],
            "TCP": tcp[1],
            "SEGMENT": self._segment,
            "EMPTY": self._empty,
            "QUEUE": self._queue,
            "SEMAPHORES": self._semaphores,
            "MESSAGES": self._messages,
            "TERMINAL": os.ttyname(self._terminal[1]),
        }
        return "".join(f"{name} = {value!r}\n" for name, value in names.items())

    def state(self) -> dict[str, Any]:
        """Everything of them that could be touched; what listeners have received is taken."""
        status = Path(f"/proc/{self._process}/status").read_text().splitlines()
        fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
        process = psutil.Process(self._process)
        return {
            "stopped": fields["State"][0] in "TtZX",
            "signals": (fields["SigPnd"], fields["ShdPnd"]),
            "nice": process.nice(),
            "affinity": sorted(process.cpu_affinity()),
            "policy": os.sched_getscheduler(self._process),
            "disk priority": _libc.syscall(_SYS_IOPRIO_GET, 1, self._process),
            "limits": Path(f"/proc/{self._process}/limits").read_text(),
            "own nice": os.nice(0),
            "own affinity": sorted(os.sched_getaffinity(0)),
            "memory": bytes((ctypes.c_char * 8).from_address(self._memory)),
            "received": [_has_received(listener) for listener in self._listeners],
            "queue": _state_by(_libc.msgctl, self._queue, _IPC_STAT),
            "semaphores": _state_by(_libc.semctl, self._semaphores, 0, _IPC_STAT),
            "messages": _state_by(_libc.mq_getattr, self._open_messages),
            "messages' file": _state_of_file(self._open_messages),
            "typed": bool(select.select(self._terminal, [], [], 0)[0]),
            "terminal": termios.tcgetattr(self._terminal[1]),
            **{path: _state_of_file(path) for path in (self._folder, self._file, self._empty)},
            "entries": sorted(os.listdir(self._folder)),
            "content": Path(self._file).read_text(),
        }


@contextmanager
def outside(user: int) -> Iterator[Outside]:
    with ExitStack() as stack:
        yield Outside(stack, user)


def _start_process(user: int) -> subprocess.Popen[bytes]:
    """A process that ends with this one, and blocks all signals, so that they stay pending."""
    root = {"user": user, "group": user, "extra_groups": []} if os.geteuid() == 0 else {}
    return subprocess.Popen(
        ["cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()),
        **root,
    )


@contextmanager
def _listener(family: int, kind: int, address: Any) -> Iterator[socket.socket]:
    with socket.socket(family, kind) as listener:
        listener.bind(address)
        if isinstance(address, str) and not address.startswith("\0"):
            os.chmod(address, 0o777)
        if kind == socket.SOCK_STREAM:
            listener.listen()
        listener.setblocking(False)
        yield listener


def _has_received(listener: socket.socket) -> bool:
    with suppress(BlockingIOError):
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(1)
        return True
    return False


def _state_by(function: Callable[..., int], *arguments: int) -> bytes:
    """What one of the C library's functions writes about something."""
    state = ctypes.create_string_buffer(_STATE_BYTES)
    assert function(*arguments, state) == 0
    return state.raw


def _state_of_file(path: str | int) -> tuple[Any, ...]:
    """All but when it was last read."""
    s = os.stat(path)
    times = s.st_mtime_ns, s.st_ctime_ns
    return s.st_ino, s.st_mode, s.st_uid, s.st_gid, s.st_size, s.st_nlink, times, os.listxattr(path)
