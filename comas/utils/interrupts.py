"""Handle Ctrl-C during a command's imports, and while a coroutine runs."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Coroutine
from contextlib import closing
from types import FrameType
from typing import Any, NoReturn, TypeVar

EXIT_INTERRUPTED = 130
"""The status with which a shell reports Ctrl-C."""
PATIENCE_S = 5.0
"""Seconds for which a coroutine may clean up after the first Ctrl-C, even if more follow."""

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as ``asyncio.run`` does, but allow any number of Ctrl-C: the first cancels
    it, and KeyboardInterrupt is raised when it has ended.

    Trap: ``asyncio.run`` raises the second Ctrl-C inside the event loop, which may then lose the
    wake-up of a task that the clean-up waits for. Here that only happens after ``PATIENCE_S``, and
    nothing waits afterwards.
    """
    is_main = threading.current_thread() is threading.main_thread()
    is_free = is_main and asyncio._get_running_loop() is None
    if not is_free or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        with closing(coroutine):  # asyncio.run does not, if a loop already runs
            return asyncio.run(coroutine)  # noqa: TID251
    runner, times = asyncio.Runner(), list[float]()
    loop = runner.get_loop()
    task = loop.create_task(coroutine)

    def interrupt(number: int, frame: FrameType | None) -> None:
        times.append(time.monotonic())
        if times[-1] - times[0] > PATIENCE_S:
            loop.set_exception_handler(lambda *_: None)  # tasks are left as they are
            raise KeyboardInterrupt
        if not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)

    exits: list[SystemExit] = []
    signal.signal(signal.SIGINT, interrupt)
    try:
        while not task.done():
            try:
                loop.run_until_complete(asyncio.wait([task]))
            except SystemExit as left:  # of a plug-in, in any task
                exits.append(left)
                task.cancel()
        runner.close()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    error = None if task.cancelled() else task.exception()
    if times:
        raise KeyboardInterrupt from error
    if exits:
        raise exits[0]
    return task.result()


def end_at_ctrl_c() -> None:
    """Let Ctrl-C end this process at once, until ``start_command``. During imports, libraries may
    catch KeyboardInterrupt or turn it into another error."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        os.write(2, b"interrupted\n")
        os._exit(EXIT_INTERRUPTED)

    signal.signal(signal.SIGINT, end)
