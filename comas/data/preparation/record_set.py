"""Datasets of the hub, and the conversion of each row to a record or a reason to omit it."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, NamedTuple

from comas.data.records import Record
from comas.data.rows import DataError
from comas.types import Domain

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """One split of one dataset, at one commit.

    Example: ``Source("openai/gsm8k", configs=("main",), split="test", revision="740312ad...",
    licence="mit", columns={"question": str, "answer": str}, num_rows=1319)``
    """

    hub_name: str
    configs: tuple[str, ...]
    """The hub's subsets, read one after the other."""
    split: str
    revision: str
    licence: str | None
    """Licence in the dataset's card; None if it states none."""
    columns: Mapping[str, type | UnionType]
    """The columns that the conversion reads, with the Python type of their values."""
    num_rows: int | None = None
    """Rows of all configs together; None if unknown."""


@dataclass(frozen=True)
class Item:
    """A question with its gold answer.

    Example: ``Item("How far does it fall in 2 s?", "19.6", details='Give the answer in the unit
    "m".')``
    """

    question: str
    """The dataset's own words, in which repetitions are sought."""
    answer: str
    details: str = ""
    """Text after the question in the prompt: unit tests, the requested unit, the options."""
    solution: str = ""
    """A reference program, to verify a coding item."""

    @property
    def prompt(self) -> str:
        return f"{self.question}\n\n{self.details}" if self.details else self.question


@dataclass(frozen=True)
class LeftOut:
    """Why a row is omitted; equal reasons are counted together."""

    reason: str


@dataclass(frozen=True)
class RecordSet:
    """A dataset with the conversion of its rows, which gets only rows with all columns of the
    source, not None and of their types. ``name`` is the records' ``source``, ``form`` their
    ``task``."""

    name: str
    form: Domain
    source: Source
    convert: Callable[[Row], Item | LeftOut]


class Converted(NamedTuple):
    record: Record
    item: Item


def convert_rows(
    record_set: RecordSet, rows: Iterable[Row]
) -> tuple[list[Converted], Counter[str]]:
    """Convert every row; return the records, whose ids hold the number of the row from 0, and the
    number of omitted rows by reason. Raises DataError if a column of ``record_set.source`` is
    missing or a value has the wrong type."""
    converted: list[Converted] = []
    left_out: Counter[str] = Counter()
    name, form = record_set.name, record_set.form
    for number, row in enumerate(rows):
        item = _convert(record_set, row, number)
        if isinstance(item, LeftOut):
            left_out[item.reason] += 1
        else:
            record = Record(f"{name}-{number:05d}", form, item.prompt, item.answer, source=name)
            converted.append(Converted(record, item))
    return converted, left_out


def benchmark_file(name: str) -> str:
    """Return the path of a benchmark's records in the folder of built data."""
    return f"benchmarks/{name}.jsonl"


def with_unit(unit: str) -> str:
    """Return the sentence that asks for a number in a unit ("" for none)."""
    return f"Give the answer in the unit {unit}." if unit else "The answer has no unit."


def is_decimal_number(text: str) -> bool:
    """Return True if ``text`` is a gold answer for science: ``"19.6"``, ``"-3"``, ``"1.35e-5"``."""
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def _convert(record_set: RecordSet, row: Row, number: int) -> Item | LeftOut:
    place = f"{record_set.source.hub_name}, row {number}"
    for column, wanted in record_set.source.columns.items():
        if column not in row:
            raise DataError(
                f"{place}: no column {column!r}; it has {', '.join(row)}. This is another dataset "
                "than the questions are built from, or its schema changed"
            )
        if (value := row[column]) is None:
            return LeftOut(f"it has no {column}")
        if not isinstance(value, wanted):
            kind = "float" if isinstance(value, float) else type(value).__name__
            held = f"{kind} {str(value)[:60]!r}, not {getattr(wanted, '__name__', wanted)}"
            raise DataError(f"{place}: column {column!r} holds {held}, as Source.columns says")
    item = record_set.convert(row)
    if isinstance(item, Item) and not (item.question.strip() and item.answer.strip()):
        return LeftOut("its question or its answer is empty")
    return item
