"""Live runs: their new steps, and how long they still take."""

import hashlib
import json
import math
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from comas.run.pages.discussions import discussion_files, read_details, read_threads
from comas.run.pages.page import Details, PageSource
from comas.run.pages.run_report import config_of, notes_on, report_source, rounded_rows, run_source
from comas.run.records import METRICS, Row
from comas.run.status import end_of, noted_num_steps

RECENT_STEPS = 10
"""Steps whose median time is the estimate for later ones."""


class LiveRun:
    """A run that may be under way. Raises ValueError when the folder is no run's."""

    def __init__(self, run: Path, *, steps: Container[int] | None = None) -> None:
        """``steps``: whose discussions to show; None: all."""
        self._run = run.resolve()  # saves/latest may point elsewhere later
        self._steps = steps
        self.source()

    def source(self) -> PageSource:
        source = run_source(self._run, steps=self._steps, with_details=False)
        # Discussions are written before the row of their step.
        last = source.rows[-1]["step"] if source.rows else -1
        threads = [each for each in source.threads if (each.step or 0) <= last]
        return replace(source, threads=threads, live=self._live(source.rows))

    def news(self, mark: str) -> dict[str, Any] | None:
        """Return what came after ``mark``; None if the run no longer has that row."""
        rows = rounded_rows(self._run)
        known = next((n for n in range(len(rows), -1, -1) if mark_of(rows[:n]) == mark), None)
        if known is None:
            return None
        files = discussion_files(self._run)
        new = [row["step"] for row in rows[known:] if row["step"] in files]
        news = {
            "rows": rows[known:],
            "threads": [
                asdict(thread)
                for step in new
                if self._steps is None or step in self._steps
                for thread in read_threads(step, files[step])
            ],
            "live": self._live(rows),
            "notes": notes_on(self._run, rows),
        }
        if known < len(rows):
            report = report_source(self._run)
            news |= {"featured": report.featured, "result": report.result}
        return news

    def details(self, step: int) -> Details:
        """Return the prompts and tokens of the discussions of ``step``."""
        config = config_of(self._run)
        path = discussion_files(self._run).get(step)
        threads = [] if path is None else read_threads(step, path)
        # With society.update_every > 1, advantages are in the file of a later step.
        steps = range(step, step + max(1, *config.update_every))
        return read_details(self._run, config, threads, steps=steps).get(str(step), {})

    def _live(self, rows: Sequence[Row]) -> dict[str, str]:
        return {"mark": mark_of(rows), "progress": end_of(self._run) or self._progress(rows)}

    def _progress(self, rows: Sequence[Row]) -> str:
        """Describe the position of the run and the time left.

        Example: ``step 12 of 60, about 14 min left; step 12 ended 5 s ago``
        """
        if not rows:
            return "no step yet: the engines are starting"
        step, num_steps = rows[-1]["step"], noted_num_steps(self._run)
        validate_every = config_of(self._run).training.validate_every
        left_s = seconds_left(rows, num_steps=num_steps, validate_every=validate_every)
        total = "" if num_steps is None else f" of {num_steps}"
        left = "" if left_s is None else f", about {duration(left_s)} left"
        age_s = time.time() - (self._run / METRICS).stat().st_mtime
        return f"step {step}{total}{left}; step {step} ended {duration(age_s)} ago"


def mark_of(rows: Sequence[Row]) -> str:
    """Return the number of rows and a digest of the last, which shows whether the run went back."""
    last = json.dumps(rows[-1:], sort_keys=True).encode()
    return f"{len(rows)}-{hashlib.sha256(last).hexdigest()[:16]}"


def seconds_left(
    rows: Sequence[Row], *, num_steps: int | None, validate_every: int
) -> float | None:
    """Estimate the time left by the medians of steps and validations; None if unknown.

    Example: after step 3 of 10, steps of 6 s, validations of 4 s every 5 steps: 7 * 6 + 2 * 4 = 50.
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


def news_of(runs: Sequence[LiveRun], marks: Sequence[str]) -> Mapping[str, Any]:
    """Return what is new since each run's mark, or that the page has to be reloaded."""
    if len(marks) != len(runs):
        return {"reload": True}
    news = [run.news(mark) for run, mark in zip(runs, marks, strict=True)]
    return {"reload": True} if None in news else {"reload": False, "sources": news}
