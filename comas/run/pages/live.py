"""Runs under way: what is new of them, and how long they still take."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from comas.config.loading import read
from comas.config.schema import Config
from comas.run.directory import NUM_STEPS, trained_steps
from comas.run.pages.details import NOT_WRITTEN, read_details
from comas.run.pages.discussions import discussion_files, read_threads, step_of
from comas.run.pages.page import Details, PageSource
from comas.run.pages.run_report import (
    result_in_words,
    rounded,
    settings_table,
    versions_tables,
)
from comas.run.records import METRICS, Row, read_rows
from comas.run.seals import CONFIG
from comas.utils.files import from_here

STEPS_AT_ONCE = 20
"""Steps of which one answer tells, so that none takes long; the page asks on."""
KEPT_FILES = 64
"""Files whose contents are kept in memory."""
RECENT_STEPS = 10
"""Latest steps by whose time that of the others is estimated."""
T = TypeVar("T")

NOTHING = "0-"
"""The mark of a run that has no rows yet."""


class LiveRun:
    """A run that is followed while it makes its steps.

    Raises ValueError when the folder is no run's.
    """

    def __init__(self, run: Path, *, steps: Collection[int] | None = None) -> None:
        """``steps``: those whose discussions are shown; None: all."""
        if not (run / CONFIG).is_file():
            raise ValueError(f"{run} is no run to follow: it has no {CONFIG}. Try saves/latest")
        self._run = run.resolve()  # which saves/latest points at now
        self._steps = steps
        self._config = read(Config, run / CONFIG, [])[0]

    def source(self) -> PageSource:
        """Return what the page begins with, from which it asks for all that there is by now: no
        drawings, as it draws curves of its own."""
        rows = self._rows()
        return PageSource(
            name=self._run.name,
            path=str(from_here(self._run)),
            threads=(),
            tables=[settings_table(self._config), *versions_tables(self._run)],
            without_details=NOT_WRITTEN,
            result=result_in_words(rows),
            live={"mark": NOTHING, "progress": self._progress(rows)},
        )

    def news(self, mark: str) -> dict[str, Any] | None:
        """Return what came after ``mark``, of ``STEPS_AT_ONCE`` at most; None: the run went back
        behind it, or is another one."""
        rows = self._rows()
        known = _num_known(rows, mark)
        if known is None:
            return None
        new = rows[known : known + STEPS_AT_ONCE]
        told = rows[: known + len(new)]
        return {
            "rows": [rounded(row) for row in new],
            "threads": self._threads(new, after=rows[known - 1]["step"] if known else -1),
            "live": {"mark": mark_of(told), "progress": self._progress(rows)},
            "result": result_in_words(rows),
            "more": len(told) < len(rows),
        }

    def details(self, step: int) -> Details:
        """Prompts and tokens of the discussions of ``step``."""
        path = discussion_files(self._run).get(step)
        threads = [] if path is None else read_threads(step, path)
        # Where policies are updated more rarely, advantages are in the file of a later step.
        until = step + max(self._config.update_every, default=1)
        steps = range(step, max(until, step + 1))
        return read_details(self._run, self._config, threads, steps=steps).get(str(step), {})

    def _rows(self) -> list[Row]:
        path = self._run / METRICS
        return _kept_of(read_rows, path) if path.is_file() else []

    def _threads(self, rows: Sequence[Row], *, after: int) -> list[dict[str, Any]]:
        """The discussions of the steps that ``rows`` tell of, beyond ``after``."""
        last = rows[-1]["step"] if rows else -1
        return [
            thread
            for step, path in discussion_files(self._run).items()
            if after < step <= last and (self._steps is None or step in self._steps)
            for thread in _kept_of(_read_threads, path)
        ]

    def _progress(self, rows: Sequence[Row]) -> str:
        age_s = time.time() - (self._run / METRICS).stat().st_mtime if rows else None
        return progress_in_words(
            rows,
            num_steps=_noted_steps(self._run),
            validate_every=self._config.training.validate_every,
            is_over=rows and trained_steps(self._run) == rows[-1]["step"],
            age_s=age_s,
        )


@lru_cache(KEPT_FILES)
def _kept(build: Callable[[Path], T], path: Path, mtime_ns: int, size: int) -> T:
    """Return what ``build`` makes of a file, made again when its time or size has changed."""
    return build(path)


def _kept_of(build: Callable[[Path], T], path: Path) -> T:
    state = path.stat()
    return _kept(build, path, state.st_mtime_ns, state.st_size)


def _read_threads(path: Path) -> list[dict[str, Any]]:
    return [asdict(thread) for thread in read_threads(step_of(path), path)]


def mark_of(rows: Sequence[Row]) -> str:
    """Up to where somebody knows a run: the number of its rows, and the last of them as a digest,
    which tells whether the run has gone back since."""
    if not rows:
        return NOTHING
    last = json.dumps(rows[-1], sort_keys=True).encode()
    return f"{len(rows)}-{hashlib.sha256(last).hexdigest()[:16]}"


def _num_known(rows: Sequence[Row], mark: str) -> int | None:
    """Return how many of ``rows`` somebody has who knows a run up to ``mark``; None: other ones."""
    count = mark.partition("-")[0]
    if not count.isdecimal() or len(count) > 9 or mark_of(rows[: int(count)]) != mark:
        return None
    return int(count)


def progress_in_words(
    rows: Sequence[Row],
    *,
    num_steps: int | None,
    validate_every: int,
    is_over: object,
    age_s: float | None,
) -> str:
    """Return where a run is and how long it still takes.

    Example: ``step 12 of 60, about 14 min left; step 12 ended 5 s ago``
    """
    if not rows or age_s is None:
        return "no step yet: the engines are starting"
    step = rows[-1]["step"]
    of_all = "" if num_steps is None else f" of {num_steps}"
    if is_over:
        return f"ended after step {step}{of_all}"
    left_s = seconds_left(rows, num_steps=num_steps, validate_every=validate_every)
    left = "" if left_s is None else f", about {duration(left_s)} left"
    return f"step {step}{of_all}{left}; step {step} ended {duration(age_s)} ago"


def seconds_left(
    rows: Sequence[Row], *, num_steps: int | None, validate_every: int
) -> float | None:
    """The time of the steps and validations to come, by the medians of the latest ones; None: not
    known.

    Example: after step 3 of 10 with steps of 6 s, and validations of 4 s every 5 steps: steps 4 to
    10 and two validations, 7 * 6 + 2 * 4 = 50.
    """
    step_s = [row["time/step_s"] for row in rows if row.get("time/step_s")][-RECENT_STEPS:]
    if num_steps is None or not step_s:
        return None
    validation_s = [row["time/validation_s"] for row in rows if row.get("time/validation_s")]
    step = rows[-1]["step"]
    num_validations = math.ceil(num_steps / validate_every) - step // validate_every
    validating_s = median(validation_s) * num_validations if validation_s else 0.0
    return max(0, num_steps - step) * median(step_s) + max(0.0, validating_s)


def duration(seconds: float) -> str:
    """``5 s``, ``14 min``, ``3.5 h``"""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def _noted_steps(run: Path) -> int | None:
    """Return what ``RunDirectory.note_num_steps`` wrote; None of a run of an older version."""
    path = run / NUM_STEPS
    text = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    return int(text) if text.isdecimal() else None


def news_of(runs: Sequence[LiveRun], marks: Sequence[str]) -> Mapping[str, Any]:
    """Return what is new of each run since its mark, or that the page has to be loaded again."""
    if len(marks) != len(runs):
        return {"reload": True}
    news = [run.news(mark) for run, mark in zip(runs, marks, strict=True)]
    return {"reload": True} if None in news else {"reload": False, "sources": news}
