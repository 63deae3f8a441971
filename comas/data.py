"""Questions and their answer keys from JSON or JSONL, and the batch of every step."""

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError, from_json, to_json

from comas.files import faults_in_words
from comas.types import AnswerKey, Domain, Question

MAX_LISTED_FAULTS = 20


class DataError(ValueError):
    """A data file that cannot be used, with every faulty record."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "must not be empty")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]
Form = TypeVar("Form", bound=str)


@dataclass(frozen=True)
class Record(Generic[Form]):
    """A line of a record file; further keys are allowed there.

    Example: ``{"id": "math/17", "task": "math", "prompt": "What is 48 + 23?", "answer": "71",
    "source": "sums"}``
    """

    id: Text
    task: Form
    """A domain; of a benchmark, a form of answers."""
    prompt: Text
    answer: Text
    source: Text


QUESTION = TypeAdapter(Record[Domain])


@dataclass(frozen=True)
class QuestionSet:
    """The questions of a file, and apart from them what only verification may see.

    Example: the record ``{"id": "math/17", "task": "math", "prompt": "What is 48 + 23?",
    "answer": "71", "source": "sums"}`` gives ``Question("math/17", "math", "What is 48 +
    23?")`` and the answer ``{"math/17": "71"}``.
    """

    questions: tuple[Question, ...]
    answers: AnswerKey


def load_questions(path: Path) -> QuestionSet:
    """Read a JSON list, or JSONL, of records.

    Raises DataError that names every faulty record with its location and the reason (the first
    ``MAX_LISTED_FAULTS``, and how many there are).
    """
    records: list[Record[Domain]] = []
    faults: list[str] = []
    for location, record in read_records(path, QUESTION):
        if isinstance(record, Faulty):
            faults.append(f"{path}, {location}: {record.reason}")
        else:
            records.append(record)
    if faults:
        raise DataError(_listed(faults))
    if not records:
        raise DataError(f"{path} holds no record; one line is one question: {_EXAMPLE}")
    questions = tuple(Question(record.id, record.task, record.prompt) for record in records)
    return QuestionSet(questions, {record.id: record.answer for record in records})


def count_steps(
    num_questions: int, *, batch_size: int, num_epochs: int, num_steps: int | None
) -> int:
    """Rollout steps of a run: ``num_steps``, or else the whole batches of all epochs.

    The questions left over at the end of an epoch, fewer than a batch, are not asked in it;
    with shuffling they are others in every epoch. Example: 2000 questions in batches of 64
    are 31 steps an epoch, as in the paper, with 16 left over.

    Raises DataError when there are fewer questions than a batch holds.
    """
    if num_questions < batch_size:
        raise DataError(
            f"data.train holds {num_questions} questions, fewer than rollout.batch_size = "
            f"{batch_size} of one step: set rollout.batch_size to {num_questions} or less, "
            "or give more questions"
        )
    return num_steps or num_epochs * (num_questions // batch_size)


def draw_batch(
    questions: Sequence[Question], *, step: int, batch_size: int, seed: int, shuffle: bool
) -> list[Question]:
    """The questions of one step, from 0: a pure function, so a resumed run needs no state.

    Every epoch takes whole batches from a permutation drawn from (seed, epoch), or from the
    order of the file. Example: 5 questions in batches of 2 make epochs of 2 steps, and step 2
    takes the first two of epoch 1.
    """
    assert 0 < batch_size <= len(questions), "count_steps reports this to the user"
    epoch, batch = divmod(step, len(questions) // batch_size)
    order = list(range(len(questions)))
    if shuffle:
        random.Random(f"{seed}/epoch{epoch}").shuffle(order)
    return [questions[i] for i in order[batch * batch_size : (batch + 1) * batch_size]]


def fixed_subset(questions: Sequence[Question], num_questions: int | None) -> list[Question]:
    """The same ``num_questions`` for every seed and step, in the order given; None: all.

    Chosen by a hash of the id, so they are a fair draw even from a file sorted by task.
    Raises DataError when there are not as many.
    """
    if num_questions is None:
        return list(questions)
    if num_questions > len(questions):
        raise DataError(
            f"data.validation holds {len(questions)} questions, fewer than "
            f"validation.num_questions = {num_questions}: lower it, or write null for all"
        )
    ranked = sorted(questions, key=lambda q: hashlib.blake2b(q.question_id.encode()).digest())
    chosen = {question.question_id for question in ranked[:num_questions]}
    return [question for question in questions if question.question_id in chosen]


# ---------------------------------------------------------------- reading

_EXAMPLE = json.dumps(
    {"id": "math/17", "task": "math", "prompt": "What is 48 + 23?", "answer": "71", "source": "x"}
)


@dataclass(frozen=True)
class Faulty:
    """A record that cannot be used."""

    reason: str


def read_records(
    path: Path, kind: TypeAdapter[Record[Form]]
) -> Iterator[tuple[str, Record[Form] | Faulty]]:
    """(location, record) of each record of a JSON list or JSONL, whose ids must differ.

    Raises DataError when the file cannot be read, or begins like a JSON list and is none.
    """
    location_of_id: dict[str, str] = {}
    for location, text in _texts(path):
        try:
            record = kind.validate_json(text)
        except ValidationError as error:
            yield location, Faulty(faults_in_words(error))
            continue
        first = location_of_id.setdefault(record.id, location)
        if first != location:
            yield location, Faulty(f"id {record.id!r} is already that of {first}")
        else:
            yield location, record


def _texts(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}. bash scripts/prepare_data.sh builds the "
            "paper's questions, and data/README.md says how to write your own; data.train and "
            "data.validation name the files"
        ) from error
    if content.lstrip().startswith(b"["):
        try:
            records = from_json(content)
        except ValueError as error:
            raise DataError(f"{path} begins like a JSON list, but is none: {error}") from error
        yield from ((f"record {n}", to_json(record)) for n, record in enumerate(records, start=1))
        return
    # Not splitlines(), which would also split at U+2028 within a JSON string.
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            yield f"line {number}", line


def _listed(faults: Sequence[str]) -> str:
    count = f"{len(faults)} faulty record{'s' * (len(faults) != 1)}; write each like {_EXAMPLE}:"
    lines = [count, *faults[:MAX_LISTED_FAULTS]]
    if len(faults) > MAX_LISTED_FAULTS:
        lines.append(f"... and {len(faults) - MAX_LISTED_FAULTS} more")
    return "\n  ".join(lines)
