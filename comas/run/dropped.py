"""What a run went back behind: ``dropped/<date>-<time>/``, laid out like the run itself.

A run that goes on from a checkpoint makes the steps after it again. What it had of them is not
deleted: the settings may have changed since, or the checkpoints been lost.
"""

import shutil
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from comas.run.records import METRICS, Row, read_rows
from comas.utils.files import append_lines, explaining_errors, json_lines, new_folder, remove

DROPPED = "dropped"


class Dropped:
    """Takes what a process of the run drops, each thing once.

    What it drops a second time, as after each loss of an engine, it has made itself and makes
    again with the same settings: that is deleted, so that losses do not fill the disk.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._folder: Path | None = None

    def take(self, rows: Sequence[Row], paths: Iterable[Path]) -> Path | None:
        """Move ``paths`` away, and write down ``rows``; returns the folder that they are in now,
        None where there was nothing to take."""
        paths = list(paths)
        if not rows and not paths:
            return None
        if self._folder is None:
            stem = f"{datetime.now():%Y%m%d-%H%M%S}"
            self._folder = new_folder(self._run / DROPPED, stem)
        with explaining_errors(self._folder):
            if rows:
                self._take_rows(self._folder / METRICS, rows)
            for path in paths:
                _move(path, self._folder / path.relative_to(self._run))
        return self._folder

    def _take_rows(self, file: Path, rows: Sequence[Row]) -> None:
        here = {row["step"] for row in read_rows(file)} if file.exists() else set()
        lines = json_lines(row for row in rows if row["step"] not in here)
        append_lines(file, lines.encode().splitlines())


def _move(path: Path, target: Path) -> None:
    if target.exists():
        remove(path)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)  # which a rename cannot where a subfolder is on another disk
