"""The answers to one benchmark under one setup, written as they arrive: inference.jsonl (an answer
with its transcript per line), and failures.jsonl (tasks that failed in the last session)."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from comas.utils.files import append_lines, read_lines
from evaluation.types import Answer

ANSWERS = "inference.jsonl"
FAILURES = "failures.jsonl"

DAMAGED = "Delete the line and rerun the command, which asks that task again"

AnswerKey = tuple[str, int]
"""(task_id, seed)"""

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """A task without an answer, to be asked again by the next session."""

    task_id: str
    seed: int
    error: str


_ANSWER = TypeAdapter(Answer)
_FAILURE = TypeAdapter(Failure)


def read_inference(path: Path) -> list[Answer]:
    """Return the answers in order of arrival; empty if there is no file.

    A partial last line is ignored. Raises ValueError, with file and line, when another line cannot
    be read.
    """
    return _read(path, _ANSWER)


def read_failures(path: Path) -> dict[AnswerKey, str]:
    """Return the errors of the last session; otherwise as ``read_inference``."""
    return {(f.task_id, f.seed): f.error for f in _read(path, _FAILURE)}


def append_answer(folder: Path, answer: Answer) -> None:
    """Write an answer to disk, synced. Raises FileError when it cannot be written."""
    append_lines(folder / ANSWERS, [_ANSWER.dump_json(answer)])


def append_failure(folder: Path, failure: Failure) -> None:
    """Record a failed task, unsynced: losing it does no harm."""
    append_lines(folder / FAILURES, [_FAILURE.dump_json(failure)], sync=False)


def _read(path: Path, adapter: TypeAdapter[T]) -> list[T]:
    return read_lines(path, adapter.validate_json, remedy=DAMAGED) if path.exists() else []
