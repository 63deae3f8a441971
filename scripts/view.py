"""Writes a run, or the results of an evaluation, as one page: what scripts/view.sh starts."""

import argparse
import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from comas.run.pages.page import Source, write_page
from comas.run.pages.run_report import run_source
from comas.utils.terminal import command
from evaluation.transcripts import results_source

VIEW = "view.html"
LARGE_MIB = 100
"""Size from which browsers need seconds to open a page."""

log = logging.getLogger("view")


@command("view")
def main(arguments: Sequence[str]) -> int:
    """Write the page; returns the process's exit status."""
    parser = argparse.ArgumentParser(prog="bash scripts/view.sh")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("saves/latest"))
    parser.add_argument("--against", type=Path)
    parser.add_argument("--steps", type=steps_of)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    folders = [folder for folder in (options.folder, options.against) if folder is not None]
    path = options.output or options.folder / VIEW
    write_page(path, [read_source(folder, steps=options.steps) for folder in folders])
    size_mib = path.stat().st_size / 2**20
    if size_mib > LARGE_MIB:
        log.warning("%.0f MiB are much for a browser: --steps takes fewer", size_mib)
    sys.stdout.write(f"{path.resolve()} ({size_mib:.1f} MiB): open it in a browser\n")
    return 0


def read_source(folder: Path, *, steps: set[int] | None) -> Source:
    """A run's folder has metrics.jsonl; any other is taken for results.

    Raises ValueError when it is neither.
    """
    if (folder / "metrics.jsonl").is_file():
        return run_source(folder, steps=steps)
    try:
        return results_source(folder)
    except ValueError as error:
        raise ValueError(
            f"{folder} is no run directory, as it has no metrics.jsonl (try saves/latest), and no "
            f"results: {error}"
        ) from error


def steps_of(text: str) -> set[int]:
    """``"1,10-12" -> {1, 10, 11, 12}``"""
    steps: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise argparse.ArgumentTypeError(f"{text!r}: write steps like 1,10-12")
        steps |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return steps


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
