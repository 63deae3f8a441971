"""What the commands of this project share at a terminal: messages, signals, exit statuses."""

import logging
import signal
import sys

EXIT_FAULT = 1
EXIT_INTERRUPTED = 130
"""As a shell reports a process that Ctrl-C ended."""


def start_command(*loggers: str) -> None:
    """Show what ``loggers`` say, from level INFO on, and let SIGTERM end us as Ctrl-C does.

    Both then raise KeyboardInterrupt, so that children are stopped and finished work is kept.
    """
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setLevel(logging.INFO)
    logging.basicConfig(format="%(message)s", handlers=[terminal])
    for name in loggers:
        logging.getLogger(name).setLevel(logging.INFO)
    # Trap: a shell starts background jobs with SIGINT ignored; nothing would then stop them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
