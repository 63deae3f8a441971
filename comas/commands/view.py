"""``comas view``: writes runs or evaluation results as one page, or follows live runs."""

import argparse
import logging
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from comas.config.paths import find, here, tried, whole
from comas.run.pages.live import LiveRun
from comas.run.pages.page import PageSource, page_text
from comas.run.pages.run_report import run_source
from comas.utils import progress
from comas.utils.files import write_text
from comas.utils.invocation import CommandParser
from comas.utils.progress import progress_bar
from comas.utils.terminal import command
from evaluation.transcripts import results_source

VIEW = "view.html"
LARGE_MIB = 100
"""Browsers need seconds to open larger pages."""

log = logging.getLogger("view")


@dataclass(frozen=True)
class Steps:
    """Ranges of steps: ``11 in Steps((range(10, 13),))``."""

    parts: tuple[range, ...]

    def __contains__(self, step: object) -> bool:
        return any(step in part for part in self.parts)


@command("view", progress.__name__)
def main(arguments: Sequence[str]) -> int:
    """Write or serve the page; returns the exit status."""
    parser = CommandParser("view")
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--steps", type=steps_of)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--output", type=Path)
    where.add_argument("--live", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_intermixed_args(arguments)
    if options.port and not options.live:
        parser.error("--port is for --live")
    folders = [find(folder) or folder for folder in options.folders or [Path("saves/latest")]]
    if options.live:
        follow(folders, steps=options.steps, port=options.port)
        return 0
    own = options.output and here() / whole(str(options.output), "new folder", None)
    path = own or folders[0] / VIEW
    with progress_bar("reading what the page shows"):
        sources = [read_source(folder, steps=options.steps) for folder in folders]
        write_text(path, page_text(sources))
    size_mib = path.stat().st_size / 2**20
    if size_mib > LARGE_MIB:
        log.warning("%.0f MiB are slow in a browser: choose fewer --steps", size_mib)
    sys.stdout.write(f"{path.resolve()} ({size_mib:.1f} MiB): open it in a browser\n")
    return 0


def follow(folders: Sequence[Path], *, steps: Steps | None, port: int) -> None:
    """Serve the page of runs until Ctrl-C. Raises ValueError if one is no run, the port taken."""
    from comas.run.pages.server import HOST, LiveServer  # uvicorn takes half a second

    with progress_bar("reading the runs"):
        runs = [LiveRun(folder, steps=steps) for folder in folders]
    try:
        server = LiveServer(runs, port=port)
    except (OSError, OverflowError) as error:
        raise ValueError(f"--port {port} cannot be used ({error}): choose another") from error
    sys.stdout.write(
        f"{server.address}\nopen this in a browser; Ctrl-C ends it. On another machine, first "
        f"ssh -L {server.port}:{HOST}:{server.port} to this one\n"
    )
    sys.stdout.flush()
    server.run(sockets=[server.socket])


def read_source(folder: Path, *, steps: Steps | None) -> PageSource:
    """Read a run, if the folder has metrics.jsonl, or else evaluation results. Raises ValueError
    when it is neither."""
    if not folder.is_dir():
        raise ValueError(f"there is no {folder}{tried(folder)}. Training writes runs to saves/")
    if (folder / "metrics.jsonl").is_file():
        return run_source(folder, steps=steps)
    try:
        return results_source(folder)
    except ValueError as error:
        raise ValueError(
            f"{folder} is neither a run directory, as it has no metrics.jsonl, nor results: {error}"
        ) from error


def steps_of(text: str) -> Steps:
    """``"1,10-12" -> Steps((range(1, 2), range(10, 13)))``"""
    parts = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise argparse.ArgumentTypeError(f"{text!r}: write steps like 1,10-12")
        parts.append(range(int(match[1]), int(match[2] or match[1]) + 1))
    return Steps(tuple(parts))
