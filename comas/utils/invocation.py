"""The arguments and help of commands, and how messages refer to commands and programs."""

import argparse
import re
import sys
from importlib import resources
from pathlib import Path

from comas.utils.files import in_command

SCRIPTS = {
    "train": "train_comas.sh",
    "evaluate": "evaluate_model.sh",
    "view": "view.sh",
    "discuss": "discuss.sh",
    "serve": "serve.sh",
    "check-data": "check_data.sh",
}
"""Subcommands of ``comas``, and the scripts of a checkout that start them."""
_SCRIPTS_FOLDER = Path(__file__).parents[2] / "scripts"


def start_of(command: str) -> str:
    """Return how to start a subcommand: ``bash scripts/view.sh``, or ``comas view`` of a wheel."""
    script = _SCRIPTS_FOLDER / SCRIPTS[command]
    return f"bash {in_command(script)}" if script.is_file() else f"comas {command}"


def of_checkout(words: str) -> str:
    """Return words that name scripts or pages of the repository, with their paths from here. If pip
    has installed the package, which leaves these out, say so."""
    names, root = re.compile(r"[\w./-]+\.(?:sh|md)\b"), _SCRIPTS_FOLDER.parent
    if (root / names.findall(words)[0]).is_file():
        return names.sub(lambda found: in_command(root / found[0]), words)
    return f"{words} (in a checkout of CoMAS: pip does not install it)"


def program(name: str) -> str:
    """Return a program of this environment for a command line: ``.venv/bin/pip``."""
    return in_command(Path(sys.prefix) / "bin" / name)


def help_of(command: str) -> str:
    """Return a subcommand's help, ``help/<command>.txt``, which begins with its usage."""
    text = resources.files("comas").joinpath("help", f"{command}.txt").read_text("utf-8")
    return text.replace("{command}", start_of(command))


class CommandParser(argparse.ArgumentParser):
    """Parses the arguments of a subcommand. Wrong ones print the usage and exit with status 2;
    ``--help`` prints the whole help and exits with status 0."""

    def __init__(self, command: str) -> None:
        self._help = help_of(command)
        usage = self._help.partition("\n\n")[0].removeprefix("usage: ")
        super().__init__(prog=start_of(command), usage=usage, allow_abbrev=False)

    def format_help(self) -> str:
        return self._help
