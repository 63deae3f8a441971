"""The state of a run, read from its folder by any process: its steps, and whether it has ended."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from comas.run.records import METRICS, Row, read_rows
from comas.utils import files

MODELS, BEST = "models", "best"
"""Folders of the models after the last step, and of those of the best checkpoint."""
STEP_OF_MODELS, NUM_STEPS, ENDED = "step", "num_steps", "ended"
"""Files: the step of the models beside it, the planned number of steps, why the run ended early."""


def trained_steps(run: Path, *, name: str = MODELS) -> int | None:
    """Return how many steps the agents in ``models/`` (or ``BEST``) were trained for; None if
    none are saved or the number is damaged."""
    return _number_in(run / name / STEP_OF_MODELS)


def noted_num_steps(run: Path) -> int | None:
    """Return the planned number of steps; None before the run has begun."""
    return _number_in(run / NUM_STEPS)


def _number_in(path: Path) -> int | None:
    text = path.read_text(errors="replace") if path.is_file() else ""
    return int(text) if text.strip().isdecimal() else None


def best_step(rows: Iterable[Row], metric: str) -> int | None:
    """Return the first step with the highest value of ``metric``; None if it was never measured."""
    measured = [row for row in rows if row.get(metric) is not None]
    return max(measured, key=lambda row: row[metric])["step"] if measured else None


def end_of(run: Path) -> str | None:
    """Return how a run ended; None while it is running.

    Example: ``stopped after step 5 of 6 (2025-01-31 09:45): error: cannot write ...``
    """
    rows, num_steps = read_rows(run / METRICS), noted_num_steps(run)
    step = rows[-1]["step"] if rows else 0
    after = f"after step {step}" + (f" of {num_steps}" if num_steps is not None else "")
    if trained_steps(run) == step >= (num_steps or 0):
        return f"ended {after}"
    if files.is_locked(run):
        return None
    last_sign, reason = run / METRICS, "no reason is on record: it may have been killed"
    if (run / ENDED).is_file():
        last_sign, reason = run / ENDED, (run / ENDED).read_text(errors="replace")
    when = datetime.fromtimestamp(last_sign.stat().st_mtime)
    return f"stopped {after} ({when:%Y-%m-%d %H:%M}): {reason}"
