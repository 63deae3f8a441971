"""Questions and their answer keys: defines records, and turns rows of any file into records."""

import json
import re
import reprlib
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from comas.config.schema import Data
from comas.config.schema.questions import COLUMNS
from comas.data import reasoning_gym
from comas.data.cells import has_column, spells_missing, text_of, value_at
from comas.data.choices import gold_with_options, with_choices
from comas.data.rows import DataError, Invalid, json_rows, read_rows, source_of
from comas.types import AnswerKey, Domain, Question
from comas.utils.files import errors_in_words
from comas.verification.forms import join_columns

MAX_LISTED_ERRORS = 20
MAX_LISTED_LOCATIONS = 10
NEEDED = ("task", "prompt", "answer")
"""Keys that a record must have; the others have defaults."""
_EXAMPLE = json.dumps(
    {"id": "math/17", "task": "math", "prompt": "What is 48 + 23?", "answer": "71", "source": "x"}
)
RECORDS = Data()
"""Settings for files of records, whose columns have the names of the keys."""

_UNSEEN = {"Zs", "Zl", "Zp", "Cc", "Cf"}
"""Unicode categories of invisible characters: spaces, and controls such as U+200B."""
_VARYING = re.compile(r"'(?:[^'\\]|\\.)*'|\"[^\"]*\"|\d[\d,]*")
"""Parts that differ among errors of one kind: quoted values and numbers."""


def _not_blank(text: str) -> str:
    if all(unicodedata.category(character) in _UNSEEN for character in text):
        raise PydanticCustomError("blank", "must not be empty")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]


Kind = TypeVar("Kind", bound=Any)
Sound = TypeVar("Sound")


@dataclass(frozen=True)
class Record:
    """A line of a record file, which may have further keys.

    Example: ``{"id": "math/17", "task": "math", "prompt": "What is 48 + 23?", "answer": "71",
    "source": "sums"}``
    """

    id: Text
    task: Domain
    prompt: Text
    answer: Text
    source: Text
    columns: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """All columns of its row."""

    @property
    def gold(self) -> str:
        """The answer for verifiers: for choice, with the options at the end of the prompt."""
        return gold_with_options(self.answer, self.prompt) if self.task == "choice" else self.answer

    @property
    def gold_with_columns(self) -> str:
        """The same for verifiers that read the columns of a question."""
        return join_columns(self.gold, _columns(self))


RECORD = TypeAdapter(Record)


@dataclass(frozen=True)
class QuestionSet:
    """The questions of a file, and separately the answers, which only verification may see:
    ``Question("math/17", "math", "What is 48 + 23?")`` and ``{"math/17": "71"}``."""

    questions: tuple[Question, ...]
    answers: AnswerKey


def load_questions(
    name: str | Path,
    rules: Data = RECORDS,
    *,
    with_columns: bool = False,
    verified_with: Collection[str] = (),
) -> QuestionSet:
    """Load the questions of a file, or of a dataset on the hub, as ``rules`` describe it.

    ``with_columns``: keep all columns of a row as ``Question.columns``, with ``gold`` (the record's
    answer) and ``source`` (the record's, unless the row has one).
    ``verified_with``: domains whose verifiers get the same columns.

    Raises DataError as ``sound_records`` does.
    """
    records = sound_records(str(name), read_questions(name, rules), example=_EXAMPLE)
    questions = tuple(
        Question(r.id, r.task, r.prompt, _columns(r) if with_columns else {}) for r in records
    )
    answers = {r.id: r.gold_with_columns if r.task in verified_with else r.gold for r in records}
    return QuestionSet(questions, answers)


def _columns(record: Record) -> Mapping[str, Any]:
    return {"source": record.source, **record.columns, "gold": record.answer}


def sound_records(
    name: str, records: Iterable[tuple[str, Sound | Invalid]], *, example: str
) -> list[Sound]:
    """Return the records of a file, if none is faulty. Raises DataError with the locations and
    reasons of invalid records, up to ``MAX_LISTED_ERRORS`` kinds of faults."""
    sound: list[Sound] = []
    faults: dict[str, str] = {}
    for location, record in records:
        if isinstance(record, Invalid):
            faults[location] = record.reason
        else:
            sound.append(record)
    if faults:
        count = f"{len(faults)} invalid record{'s' * (len(faults) != 1)}"
        kinds = grouped(faults)
        lines = [f"{count}; write each like {example}:"]
        lines += [f"{name}, {kind}" for kind in kinds[:MAX_LISTED_ERRORS]]
        if len(kinds) > MAX_LISTED_ERRORS:
            lines.append(f"... and {len(kinds) - MAX_LISTED_ERRORS} more")
        raise DataError("\n  ".join(lines))
    if not sound:
        raise DataError(f"{name} holds no record; write each like {example}")
    return sound


def read_questions(
    name: str | Path, rules: Data = RECORDS
) -> Iterator[tuple[str, Record | Invalid]]:
    """Yield (location, record) of each row of a file or dataset on the hub, or of each generated
    question; ids must differ. Raises DataError if it cannot be read."""
    name = str(name)
    if name == reasoning_gym.NAME:
        return _validated(reasoning_gym.generated_rows(rules), RECORD)
    source = source_of(name)
    records = (
        (location, _as_record(row, f"{source}/{number}", source=source, rules=rules))
        for number, (location, row) in enumerate(read_rows(name), start=1)
    )
    return _validated(records, RECORD)


def read_records(path: Path, kind: TypeAdapter[Kind]) -> Iterator[tuple[str, Kind | Invalid]]:
    """Yield (location, record) of each record of a JSON list or JSONL, whose ids must differ.
    Raises DataError as ``json_rows`` does."""
    return _validated(json_rows(path), kind)


def _validated(
    rows: Iterable[tuple[str, Any]], kind: TypeAdapter[Kind]
) -> Iterator[tuple[str, Kind | Invalid]]:
    location_of_id: dict[str, str] = {}
    for location, row in rows:
        record: Any = row
        if isinstance(row, Mapping):
            try:
                record = kind.validate_python(row)
            except ValidationError as error:
                record = Invalid(errors_in_words(error))
        elif not isinstance(row, Invalid):
            record = Invalid(f"Input should be an object, not {reprlib.repr(row)}")
        if not isinstance(record, Invalid):
            first = location_of_id.setdefault(record.id, location)
            if first != location:
                remedy = "; data.columns.id names another column; null: the row's number"
                said = f"id {record.id!r} is already used in {first}"
                record = Invalid(said + remedy if isinstance(record, Record) else said)
        yield location, record


def _as_record(row: Any, name: str, *, source: str, rules: Data) -> Any:
    """Return a row as a record, not yet validated; ``name`` is its id unless the row has one.

    Example, with ``data.columns.prompt=question``, ``data.domain=math`` and
    ``data.answer_after="####"``: ``{"question": "48 + 23?", "answer": "40 + 31 #### 71"}`` gives
    ``{"id": "mine/1", "task": "math", "prompt": "48 + 23?", "answer": "71", "source": "mine"}``.
    """
    if not isinstance(row, Mapping):
        return row
    chosen: dict[Any, Any] = COLUMNS | rules.columns
    columns = {"source": "source"}
    named = [part for part in ("id", *NEEDED) if chosen[part] is not None]
    columns |= {part: str(chosen[part]) for part in named}
    own_id = None if rules.columns.get("id") else name
    known = {"id": own_id, "task": rules.domain, "source": source}
    found = {key: value_at(row, one) for key, one in columns.items() if has_column(row, one)}
    record = known | {key: value for key, value in found.items() if value is not None}
    lacking = [key for key in ("id", *NEEDED) if record.get(key) is None]
    if faults := [_missing(key, columns.get(key), row) for key in lacking]:
        return Invalid("; ".join(faults))
    try:
        record |= _prompt_and_answer(record, columns, mark=rules.answer_after)
        if record["task"] == "choice":
            options, labels = chosen["choices"], chosen["labels"]
            options = [*map(str, options if isinstance(options, list) else [options])]
            labels = None if labels is None else str(labels)
            record = with_choices(record, row, columns=options, labels=labels)
    except ValueError as error:
        return Invalid(str(error))
    return {key: _as_text(value) for key, value in record.items()} | {"columns": row}


def _prompt_and_answer(
    record: Mapping[str, Any], columns: Mapping[str, str], *, mark: str | None
) -> dict[str, Any]:
    """Return both texts; an answer to a choice may still be a number. Raises ValueError."""
    prompt = text_of(record["prompt"], key="prompt", column=columns["prompt"])
    answer = text_of(record["answer"], key="answer", column=columns["answer"])
    is_choice = record["task"] == "choice"
    answer = answer if is_choice else _as_text(answer)
    if mark is not None and isinstance(answer, str):
        if mark not in answer:
            raise ValueError(f"answer: has no {mark!r}, after which data.answer_after looks for it")
        answer = answer.rpartition(mark)[2].strip()
    texts = {"prompt": prompt, "answer": answer}
    for key in ("prompt",) if is_choice else texts:  # an option may well be "None"
        if spells_missing(texts[key]):
            raise ValueError(
                f"{key}: {texts[key]!r} marks a missing value; correct it, or remove the record"
            )
    return texts


def _as_text(value: Any) -> Any:
    """Convert numbers as they are written; leave other values to the validation."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _missing(key: str, column: str | None, row: Mapping[str, Any]) -> str:
    if column is not None and has_column(row, column):
        return f"{key}: has no value (null, NaN or an empty cell)"
    remedy = " or data.domain" if key == "task" else ""
    return f"{key}: no column {column!r} among {', '.join(row)}; set data.columns.{key}{remedy}"


def grouped(faults: Mapping[str, str]) -> list[str]:
    """Return one line for each kind of fault: locations and the reason of the first, such as
    ``"line 3, line 4 (2 records); the first: id 'a' is already used in line 2"``."""
    kinds: dict[str, list[str]] = {}
    for location, reason in faults.items():
        kinds.setdefault(_VARYING.sub("_", reason), []).append(location)
    lines = []
    for locations in kinds.values():
        places, count = ", ".join(locations[:MAX_LISTED_LOCATIONS]), len(locations)
        if count > 1:
            places += f"{', ...' * (count > MAX_LISTED_LOCATIONS)} ({count} records); the first"
        lines.append(f"{places}: {faults[locations[0]]}")
    return lines
