"""How people start what is installed here, as messages name it."""

import sys
from pathlib import Path

from comas.utils.files import in_command


def program(name: str) -> str:
    """A program of the environment that this runs in, as a word of a command line.

    Example: ``.venv/bin/pip``
    """
    return in_command(Path(sys.prefix) / "bin" / name)
