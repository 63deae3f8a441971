"""Messages, signals and exit statuses of all commands."""

import atexit
import functools
import logging
import multiprocessing.util
import os
import signal
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn, ParamSpec

from comas.utils.files import FileError
from comas.utils.interrupts import EXIT_INTERRUPTED as EXIT_INTERRUPTED
from comas.utils.interrupts import end_at_ctrl_c
from comas.utils.temporary import temporary_folder

log = logging.getLogger(__name__)

P = ParamSpec("P")

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, kill, and the end of a terminal or ssh session."""
EXIT_ERROR = 1
"""A user error in a key, a file or data."""
EXIT_RUN = 3
"""The run learns nothing, or its weights are not finite."""
EXIT_MACHINE = 4
"""Engines or Ray were lost, or the disk is full. A resume may succeed."""
WIPE = "\r\033[K"
"""Clears the current line, on which the terminal may have echoed ^C."""
MAX_QUOTED_CHARS = 120
"""Maximum length of an excerpt in a message."""


def start_command(*loggers: str) -> None:
    """Show ``loggers`` from level INFO on, and let SIGTERM and SIGHUP raise KeyboardInterrupt as
    Ctrl-C does. Under nohup, SIGHUP stays ignored."""
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setLevel(logging.INFO)
    line = f"{WIPE}%(message)s" if sys.stderr.isatty() else "%(message)s"
    logging.basicConfig(format=line, handlers=[terminal])
    for name in loggers:
        logging.getLogger(name).setLevel(logging.INFO)
    # Trap: a shell starts background jobs with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _as_ctrl_c)


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


def printable(text: str) -> str:
    r"""Return untrusted text for a terminal, with control and formatting characters and half
    surrogate pairs escaped: ``printable("\x1b[2J") == r"\x1b[2J"``."""
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs")
        else character.encode("unicode_escape").decode()
        for character in text
    )


def excerpt(text: str) -> str:
    """Return untrusted text on one line: ``printable``, and shortened in the middle if long."""
    line = printable(" ".join(text.split()))
    half = MAX_QUOTED_CHARS // 2
    return line if len(line) <= MAX_QUOTED_CHARS else f"{line[:half]} ... {line[-half:]}"


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def command(
    *loggers: str, interrupted: str = "interrupted"
) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Decorate the ``main`` of a command to call ``start_command(*loggers)`` first. Ctrl-C (which
    prints ``interrupted``) and errors end it with a message and an exit status."""

    def decorate(main: Callable[P, int]) -> Callable[P, int]:
        @functools.wraps(main)
        def decorated(*args: P.args, **kwargs: P.kwargs) -> int:
            start_command(*loggers)
            try:
                return main(*args, **kwargs)
            except KeyboardInterrupt:
                log.error(interrupted)
                return EXIT_INTERRUPTED
            except (ValueError, OSError, RuntimeError) as error:
                log.error("error: %s", error)
                return EXIT_ERROR

        return decorated

    return decorate


def run_command(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run ``main`` on the command line's arguments, in a temporary folder, and exit with the status
    it returns. Before ``start_command``, Ctrl-C ends the process at once."""
    end_at_ctrl_c()
    try:
        with temporary_folder():
            try:
                status = main(sys.argv[1:])
            except SystemExit as end:  # argparse's, whose statuses are numbers
                assert isinstance(end.code, int)
                status = end.code
            finally:
                for number in ENDING:  # only the clean-up is left
                    signal.signal(number, signal.SIG_IGN)
                # At interpreter exit, its folder would be gone.
                multiprocessing.util._exit_function()  # type: ignore[attr-defined]
    except FileError as error:
        sys.stderr.write(f"error: {error}\n")
        status = EXIT_ERROR
    leave(status)


def leave(status: int) -> NoReturn:
    """Exit as ``sys.exit`` does, without tearing down the interpreter's modules. Trap: Ray still
    holds objects then, and Triton, which transformers imports, prints a page about leaks."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"error: standard output cannot be written: {error.strerror}\n")
        status = status or EXIT_ERROR
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(status)


@contextmanager
def deferred_signals(doing: str) -> Iterator[None]:
    """Defer Ctrl-C, SIGTERM and SIGHUP to the end of the block; ``doing`` describes it in the log.
    Then raises KeyboardInterrupt if one of them came, unless the block raised."""
    received = []

    def defer(number: int, frame: FrameType | None) -> None:
        received.append(number)
        log.warning("%s: a moment", doing)

    # Trap: a handler would receive even ignored signals (SIGHUP under nohup).
    heeded = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, defer) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt
