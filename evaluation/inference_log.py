"""The answers to one benchmark under one setup, on the disk as they come in.

A folder holds inference.jsonl (per line an answer with its whole transcript), failures.jsonl
(the tasks that failed in the last session) and sessions.jsonl (how long each session took).
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self, TypeVar

from pydantic import TypeAdapter

from comas.utils.files import append_lines, locked, read_lines, write_text
from evaluation.types import Answer

ANSWERS = "inference.jsonl"
FAILURES = "failures.jsonl"
SESSIONS = "sessions.jsonl"

IN_USE = "wait for it, stop it, or choose another name for the results"
DAMAGED = "Delete the line and rerun the command, which asks that task again"

AnswerKey = tuple[str, int]
"""(task_id, seed)"""

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """A task that got no answer; the next session asks it again."""

    task_id: str
    seed: int
    error: str


@dataclass(frozen=True)
class Session:
    """One stretch of work of the runner, to its end or, if it was killed, to its last answer."""

    started: str
    """ISO 8601 with microseconds, so that it is unique."""
    wall_s: float
    num_done: int
    """Number of answers it wrote."""


_ANSWER = TypeAdapter(Answer)
_FAILURE = TypeAdapter(Failure)
_SESSION = TypeAdapter(Session)


def read_inference(path: Path) -> list[Answer]:
    """The answers in the order in which they came in; none if there is no file.

    A last line that a kill cut off is ignored. Raises ValueError with the file and the line when
    any other line cannot be read.
    """
    return _read(path, _ANSWER)


def read_failures(path: Path) -> dict[AnswerKey, str]:
    """The failures of the last session with their errors; otherwise as ``read_inference``."""
    return {(f.task_id, f.seed): f.error for f in _read(path, _FAILURE)}


def read_sessions(path: Path) -> list[Session]:
    """The last record of each session; otherwise as ``read_inference``."""
    return list({session.started: session for session in _read(path, _SESSION)}.values())


class InferenceLog:
    """Writes what one session produces to a folder; a context manager.

    Every answer, and leaving the context, also records the session.
    """

    def __init__(self, folder: Path) -> None:
        """Open a folder, new or not, clear its failures, and keep other processes out of it.

        Raises ValueError when another is writing there already, or a file is damaged.
        """
        self._answers = folder / ANSWERS
        self._sessions = folder / SESSIONS
        self._failures = folder / FAILURES
        with ExitStack() as stack:
            stack.enter_context(locked(folder, remedy=IN_USE))
            answers = read_inference(self._answers)
            self.done = frozenset((answer.task_id, answer.seed) for answer in answers)
            """(task_id, seed) of each answer from earlier sessions."""
            read_sessions(self._sessions)
            write_text(self._failures, "")
            self._lock = stack.pop_all()
        self._started = datetime.now().astimezone().isoformat(timespec="microseconds")
        self._clock_start = time.perf_counter()
        self._num_added = 0

    def add_answer(self, answer: Answer) -> None:
        """Return when the answer is on the disk. Raises FileError when it cannot be written."""
        append_lines(self._answers, [_ANSWER.dump_json(answer)])
        self._num_added += 1
        self._write_session()

    def add_failure(self, failure: Failure) -> None:
        """Record a failed task; not synced, as losing it does no harm."""
        append_lines(self._failures, [_FAILURE.dump_json(failure)], sync=False)

    def _write_session(self) -> None:
        wall_s = round(time.perf_counter() - self._clock_start, 3)
        session = Session(self._started, wall_s, self._num_added)
        append_lines(self._sessions, [_SESSION.dump_json(session)], sync=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._write_session()


def _read(path: Path, adapter: TypeAdapter[T]) -> list[T]:
    return read_lines(path, adapter.validate_json, remedy=DAMAGED) if path.exists() else []
