"""``python -m scripts NAME ...``: the ``main`` of scripts/NAME.py; Ctrl-C ends its slow imports."""

import sys
from importlib import import_module

from comas.utils.interrupts import end_at_ctrl_c

if __name__ == "__main__":
    end_at_ctrl_c()
    from comas.utils.terminal import run_command

    run_command(import_module(f"scripts.{sys.argv.pop(1)}").main)
