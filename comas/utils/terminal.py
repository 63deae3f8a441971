"""Messages, signals and exit statuses that all commands of this project share."""

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
from pathlib import Path
from types import FrameType
from typing import NoReturn, ParamSpec

from comas.utils.files import FileError
from comas.utils.interrupts import EXIT_INTERRUPTED as EXIT_INTERRUPTED
from comas.utils.interrupts import end_at_ctrl_c
from comas.utils.processes import end_forks, keep_from_children
from comas.utils.temporary import temporary_folder

log = logging.getLogger(__name__)

P = ParamSpec("P")

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, whoever ends us, and a terminal or an ssh session that is closed."""
EXIT_FAULT = 1
"""A fault of the user's: a key, a file, data."""
EXIT_RUN = 3
"""The run cannot go on as it is: it learns nothing, or its weights are not finite."""
EXIT_MACHINE = 4
"""The machine failed it: engines or Ray were lost, or the disk is full. Resuming may do."""
WIPE = "\r\033[K"
"""Empties the cursor's line: Ctrl-C is echoed, and bars may then stand one line off."""
MAX_QUOTED_CHARS = 120
"""Of a text of somebody else's within a message."""


def start_command(*loggers: str) -> None:
    """Show what ``loggers`` say, from level INFO on; let SIGTERM and SIGHUP raise KeyboardInterrupt
    as Ctrl-C does. Under nohup SIGHUP stays ignored."""
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setLevel(logging.INFO)
    line = f"{WIPE}%(message)s" if sys.stderr.isatty() else "%(message)s"
    logging.basicConfig(format=line, handlers=[terminal])
    for name in loggers:
        logging.getLogger(name).setLevel(logging.INFO)
    # Trap: a shell starts background jobs with SIGINT ignored; nothing would then stop them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _as_ctrl_c)


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


def printable(text: str) -> str:
    r"""Return what somebody else wrote, for a terminal: a character that could move the cursor,
    change the window or turn text around is spelled: ``printable("\x1b[2J") == r"\x1b[2J"``."""
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf")
        else character.encode("unicode_escape").decode()
        for character in text
    )


def excerpt(text: str) -> str:
    """Return what somebody else wrote, as part of a line: ``printable``, blanks for lines and tabs,
    and of a long text beginning and end."""
    line = printable(" ".join(text.split()))
    half = MAX_QUOTED_CHARS // 2
    return line if len(line) <= MAX_QUOTED_CHARS else f"{line[:half]} ... {line[-half:]}"


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of equally many cells as lines of aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)) for row in rows)
    return [line.rstrip() for line in lines]


def command(
    *loggers: str, interrupted: str = "interrupted"
) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Decorate the ``main`` of a command, which then begins as by ``start_command(*loggers)``.

    Ctrl-C (of which ``interrupted`` is said) and errors end it with a message and a status.
    """

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
                return EXIT_FAULT

        return decorated

    return decorate


def run_command(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run ``main`` on the command line's arguments, with a temporary folder of its own; exit with
    the status that it returns. Until ``start_command``, Ctrl-C ends all at once."""
    end_at_ctrl_c()
    keep_from_children(Path(f"{sys.prefix}.lock"))  # which scripts/environment.sh holds
    try:
        with temporary_folder():
            try:
                status = main(sys.argv[1:])
            except SystemExit as end:  # argparse's, whose statuses are numbers
                assert isinstance(end.code, int)
                status = end.code
            finally:
                for number in ENDING:  # all that is left to do is what they ask for
                    signal.signal(number, signal.SIG_IGN)
                # At the interpreter's exit it would miss its folder.
                multiprocessing.util._exit_function()  # type: ignore[attr-defined]
                end_forks()
    except FileError as error:
        sys.stderr.write(f"error: {error}\n")
        status = EXIT_FAULT
    leave(status)


def leave(status: int) -> NoReturn:
    """Exit as ``sys.exit`` does, but for the interpreter's clearing of its modules.

    Trap: Ray holds objects beyond that, and Triton, which transformers imports, then prints a page
    about leaks.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"error: standard output cannot be written: {error.strerror}\n")
        status = status or EXIT_FAULT
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(status)


@contextmanager
def deferred_signals(doing: str) -> Iterator[None]:
    """Defer Ctrl-C, SIGTERM and SIGHUP until the end of the block, which is ``doing`` something.

    Then KeyboardInterrupt is raised if there was one of them, and the block raised nothing.
    """
    received = []

    def defer(number: int, frame: FrameType | None) -> None:
        received.append(number)
        log.warning("%s: a moment", doing)

    # Trap: what is ignored, as SIGHUP under nohup, would be received.
    heeded = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, defer) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt
