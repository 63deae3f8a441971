"""The files of a results folder: subject.json, the identity of what was evaluated, so that results
of other models or settings are not mixed; per subject and column, inference.jsonl (a line for each
answer, with its transcript), failures.jsonl (of the last session) and evaluation.json."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from comas.config.keys import leaves
from comas.utils.files import append_lines, json_type, read_json, read_lines, write_text
from comas.utils.invocation import start_of
from comas.verification import Grader, Verdict
from evaluation.types import Answer, BenchmarkTask

ANSWERS = "inference.jsonl"
FAILURES = "failures.jsonl"
EVALUATION = "evaluation.json"
SUMMARY = "summary.md"
GRADERS: tuple[Grader, ...] = get_args(Grader)
IDENTITY = "subject.json"
FORMAT_KEY, FORMAT = "format", 3
"""Incremented when keys of these files, or prompts of a setup, change."""
TASKS = "tasks"
TITLE = "title"
SAMPLING = "sampling"
SETUP_FILES = "setup_files"
MAY_GROW = (TASKS, SETUP_FILES)

Identity = Mapping[str, Any]
"""Everything that determines the answers, as JSON values: "tasks" (a fingerprint per benchmark),
"sampling", "setup_files" (SHA-256 of setups that are plug-ins), ... The "title" is informal."""

PART_NAME = re.compile(r"agent_\d+|society")

AnswerKey = tuple[str, int]
"""(task_id, seed)"""

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """A task without an answer, to be asked again by the next session."""

    task_id: str
    seed: int
    error: str


def read_inference(folder: Path) -> list[Answer]:
    """Return the answers in order of arrival; empty if there is no file.

    A partial last line is ignored. Raises ValueError, with file and line, if another is damaged.
    """
    return _read_lines(folder / ANSWERS, Answer)


def read_failures(folder: Path) -> dict[AnswerKey, str]:
    """Return the errors of the last session; otherwise as ``read_inference``."""
    return {(f.task_id, f.seed): f.error for f in _read_lines(folder / FAILURES, Failure)}


def append_answer(folder: Path, answer: Answer) -> None:
    """Write an answer to disk, synced. Raises FileError when it cannot be written."""
    append_lines(folder / ANSWERS, [json_type(Answer).dump_json(answer)])


def append_failure(folder: Path, failure: Failure) -> None:
    """Record a failed task, unsynced: losing it does no harm."""
    append_lines(folder / FAILURES, [json_type(Failure).dump_json(failure)], sync=False)


def _read_lines(path: Path, kind: type[T]) -> list[T]:
    remedy = "Delete the line and rerun the command, which asks that task again"
    return read_lines(path, json_type(kind).validate_json, remedy=remedy) if path.exists() else []


class Column(NamedTuple):
    """A benchmark under a setup: a column of the results table."""

    setup: str
    benchmark: str

    def folder(self, subject: Path) -> Path:
        """Return the folder of a subject's answers and evaluation."""
        return subject / self.benchmark / self.setup


@dataclass(frozen=True)
class GradedAnswer:
    """The verdicts of the graders on the answer to one task under one seed."""

    task_id: str
    seed: int
    response: str | None
    """Fingerprint of the graded text. Without an answer, this and the verdicts are None."""
    strict: Verdict | None
    published: Verdict | None
    math_verify: Verdict | None

    def verdict(self, grader: Grader) -> Verdict | None:
        return getattr(self, grader)


@dataclass(frozen=True)
class Tally:
    """The counted verdicts of a grader. Accuracies (0 to 1) are shares of the requested answers."""

    accuracy: float
    correct: int
    wrong: int
    unanswered: int
    failed: int
    accuracy_by_seed: tuple[float, ...]

    @property
    def num_judged(self) -> int:
        """Answers on which the grader did not fail."""
        return self.correct + self.wrong + self.unanswered


@dataclass(frozen=True)
class Cost:
    """The cost of all recorded answers."""

    calls: int
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Evaluation:
    """evaluation.json: one benchmark under one setup, graded."""

    benchmark: str
    setup: str
    seeds: tuple[int, ...]
    num_asked: int
    """Tasks times seeds, the denominator of accuracy."""
    num_done: int
    """Those with an answer."""
    num_failures: int
    """Those that failed; the rest was not asked yet."""
    graders: Mapping[Grader, Tally]
    cost: Cost
    questions: Mapping[str, str]
    """task_id -> fingerprint of form, query and gold, to compare subjects on common questions."""
    answers: tuple[GradedAnswer, ...]
    """One for every task and seed."""
    graded_by: str = ""
    """Fingerprint of the graders."""


def read_evaluation(path: Path) -> Evaluation:
    """Read an evaluation.json. Raises ValueError when it is damaged."""
    rerun = "Delete it and rerun the command that made it: the answers beside it are graded anew"
    return read_json(path, Evaluation, remedy=rerun)


def write_evaluation(path: Path, evaluation: Evaluation) -> None:
    """Replace ``path`` atomically."""
    write_text(path, json_type(Evaluation).dump_json(evaluation, indent=1).decode() + "\n")


@dataclass(frozen=True)
class Subject:
    """A model, or a society, with its evaluations."""

    part: str
    """``agent_0``, ``society``, or "" for a single model."""
    evaluations: Mapping[Column, Evaluation]

    def label(self, name: str) -> str:
        """Return its name in tables for results folder ``name``: ``quickstart/agent_0``."""
        return f"{name}/{self.part}" if self.part else name


def read_subjects(folder: Path) -> list[Subject]:
    """Read the subjects of ``results/NAME``, agents first, or of a subject's own folder. Raises
    ValueError when nothing is graded there, or a file is damaged or of another version."""
    read_sampling(folder)
    parts = [path for path in _folders(folder) if PART_NAME.fullmatch(path.name)]
    # agent_9 before agent_10, the society last
    parts.sort(key=lambda path: (path.name == "society", len(path.name), path.name))
    named = {path.name: path for path in parts} or {"": folder}
    subjects = []
    for part, path in named.items():
        found = [read_evaluation(each) for each in sorted(path.glob(f"*/*/{EVALUATION}"))]
        subjects.append(Subject(part, {Column(each.setup, each.benchmark): each for each in found}))
    if not any(subject.evaluations for subject in subjects):
        beside = [path.name for path in _folders(folder.parent)]
        raise ValueError(
            f"{folder} holds no graded results; {folder.parent} has: {', '.join(beside) or '-'}. "
            f"To produce or finish results: {start_of('evaluate')} NAME PATH"
        )
    return subjects


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def check_identity(folder: Path, identity: Identity) -> None:
    """Raise ValueError, with the differences, if ``folder`` holds results of another identity;
    benchmarks and setups may be added."""
    path = folder / IDENTITY
    if not path.is_file():
        if next(folder.glob(f"**/{ANSWERS}"), None):
            raise ValueError(f"{folder} holds results without their {IDENTITY}. {_REMEDY}")
        return
    now = json.loads(json.dumps(identity))
    if differences := list(_differences(leaves(_read(path)), leaves(now))):
        listed = "\n  ".join(differences)
        raise ValueError(
            f"{folder} holds results of another model or of other settings:\n  {listed}\n{_REMEDY}"
        )


def write_identity(folder: Path, identity: Identity) -> None:
    """Write the identity into ``folder``, keeping its other benchmarks and setups."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / IDENTITY
    before = _read(path) if path.is_file() else {}
    claimed = {key: before.get(key, {}) | identity[key] for key in MAY_GROW}
    write_text(path, json.dumps({FORMAT_KEY: FORMAT, **identity, **claimed}, indent=1) + "\n")


def read_sampling(folder: Path) -> Mapping[str, Any]:
    """Return the sampling options of ``results/NAME`` or one of its subjects. Raises ValueError
    when another version of this program wrote them."""
    path = next((p / IDENTITY for p in (folder, folder.parent) if (p / IDENTITY).is_file()), None)
    return {} if path is None else dict(_read(path)[SAMPLING])


def fingerprint(value: object) -> str:
    """Return a digest of 64 bits, enough to notice a change, of a JSON value."""
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


def questions_of(tasks: Iterable[BenchmarkTask]) -> dict[str, str]:
    """Return task_id -> fingerprint of its question and answer."""
    return {task.task_id: fingerprint([task.form, task.query, task.gold]) for task in tasks}


_REMEDY = "Choose another NAME, or delete that folder. Nothing was changed."


def _read(path: Path) -> dict[str, Any]:
    """Read subject.json. Raises ValueError when it is damaged or has another format."""
    identity = read_json(path, dict[str, Any], remedy=_REMEDY)
    found = identity.pop(FORMAT_KEY, 1)
    if found != FORMAT:
        raise ValueError(
            f"{path.parent} holds results in format {found}, and this version of the program "
            f"reads format {FORMAT}. To use them, check out the version that wrote them; "
            "to evaluate anew, choose another NAME or delete that folder. Nothing was changed."
        )
    return identity


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(before.keys() | now.keys()):
        may_be_added = key.partition(".")[0] in MAY_GROW and not (key in before and key in now)
        if key != TITLE and not may_be_added and before.get(key) != now.get(key):
            yield f"{key}: {before.get(key)} there, {now.get(key)} now"
