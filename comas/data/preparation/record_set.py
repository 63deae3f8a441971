"""A dataset of the hub, and what each row becomes: a record, or a stated reason to leave it out."""

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
    """Read one after the other; what the hub calls subsets."""
    split: str
    revision: str
    licence: str | None
    """As the dataset's card states it; None: it states none."""
    columns: Mapping[str, type | UnionType]
    """The columns that the conversion reads, with the Python type of their values."""
    num_rows: int | None = None
    """Of all configs together; None: not known to us."""


@dataclass(frozen=True)
class Item:
    """A question with its gold answer.

    Example: ``Item("How far does it fall in 2 s?", "19.6", details='Give the answer in the unit
    "m".')``
    """

    question: str
    """In the dataset's own words: what repetitions are looked for in."""
    answer: str
    details: str = ""
    """Added by the prompt to the question: unit tests, the unit asked for, the options."""
    solution: str = ""
    """A reference program, for a coding item that must prove itself."""

    @property
    def prompt(self) -> str:
        return f"{self.question}\n\n{self.details}" if self.details else self.question


@dataclass(frozen=True)
class LeftOut:
    """Why a row becomes no item; equal reasons are counted together."""

    reason: str


@dataclass(frozen=True)
class RecordSet:
    """A dataset and the conversion of its rows, in which every column of the source is there, not
    None and of its type. ``name`` is the ``source`` of its records, ``form`` their ``task``."""

    name: str
    form: Domain
    source: Source
    convert: Callable[[Row], Item | LeftOut]


class Converted(NamedTuple):
    """An item with the record that it is on disk."""

    record: Record
    item: Item


def convert_rows(
    record_set: RecordSet, rows: Iterable[Row]
) -> tuple[list[Converted], Counter[str]]:
    """Convert every row; returns the records, and how many rows were left out for each reason.

    The id of a record holds the number of its row, from 0. Raises DataError when a column that
    ``record_set.source`` names is missing, or a value has another type than it says.
    """
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
    """The path of a benchmark's records within the folder of built data."""
    return f"benchmarks/{name}.jsonl"


def with_unit(unit: str) -> str:
    """The sentence that tells the unit of a number asked for; "" is no unit."""
    return f"Give the answer in the unit {unit}." if unit else "The answer has no unit."


def is_decimal_number(text: str) -> bool:
    """True if ``text`` is a gold answer for science: ``"19.6"``, ``"-3"``, ``"1.35e-5"``."""
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def _convert(record_set: RecordSet, row: Row, number: int) -> Item | LeftOut:
    place = f"{record_set.source.hub_name}, row {number}"
    for column, wanted in record_set.source.columns.items():
        if column not in row:
            raise DataError(
                f"{place}: no column {column!r}; it has {', '.join(row)}. It is not the dataset "
                "that the questions are built from, or its schema changed"
            )
        if (value := row[column]) is None:
            return LeftOut(f"it has no {column}")
        if not isinstance(value, wanted):
            kind, shown = type(value).__name__, str(value)[:60]
            raise DataError(f"{place}: column {column!r} holds {kind} {shown!r}, not {wanted}")
    item = record_set.convert(row)
    if isinstance(item, Item) and not (item.question.strip() and item.answer.strip()):
        return LeftOut("its question or its answer is empty")
    return item
