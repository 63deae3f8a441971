"""The command ``comas``: ``comas train``, ``comas evaluate`` and so on, which scripts/*.sh start as
``python -m comas.commands``."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import NoReturn

from comas.utils.interrupts import end_at_ctrl_c

MAINS = {
    "train": "comas.__main__:main",
    "evaluate": "evaluation.command:main",
    "view": "comas.commands.view:main",
    "discuss": "comas.commands.discuss:main",
    "serve": "comas.commands.serve:main",
    "check-data": "comas.data.preparation.check:main",
}
"""Subcommand -> function, imported when called: vLLM and Ray take seconds."""

NOT_INSTALLED_WITH_IT = ("openrlhf", "vllm")
"""Packages that training needs and a wheel cannot require (see setup.py)."""


def main() -> NoReturn:
    end_at_ctrl_c()
    from comas.utils.terminal import run_command  # a slow import

    run_command(start)


def start(arguments: Sequence[str]) -> int:
    """Run the subcommand that ``arguments`` begin with; returns the exit status."""
    from comas.utils.invocation import help_of, of_checkout
    from comas.utils.terminal import EXIT_ERROR

    abouts = {name: help_of(name).split("\n\n")[1] for name in MAINS}
    parser = argparse.ArgumentParser(
        prog="comas",
        usage="comas [--version] {" + ",".join(MAINS) + "} ...",
        epilog="\n".join(f"  comas {name:<11} {about}" for name, about in abouts.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"comas {version('comas')}")
    parser.add_argument("command", choices=MAINS, help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    missing = [name for name in NOT_INSTALLED_WITH_IT if find_spec(name) is None]
    if missing and given.command == "train":
        sys.stderr.write(
            f"error: comas train needs {' and '.join(missing)}, which pip does not bring by "
            f"itself: {of_checkout('configs/README.md, As a package')}\n"
        )
        return EXIT_ERROR
    return resolve_name(MAINS[given.command])(given.arguments)
