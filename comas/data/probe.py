"""Planted solutions with known mistakes, on which judges are tested throughout a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, TypeAdapter
from pydantic_core import PydanticCustomError

from comas.data.records import Text, read_records, sound_records
from comas.types import Domain

_EXAMPLE = (
    '{"id": "sum-0", "task": "math", "prompt": "What is 48 + 23?", "solution": "8+3=11, 4+2=6. '
    '\\\\boxed{61}", "mistake": "carry lost", "true_accusation": "a carry is lost", '
    '"false_accusation": "the tens are left out"}'
)


@dataclass(frozen=True)
class ProbeItem:
    """A solution, with a true and a false accusation. ``_EXAMPLE`` is a wrong solution; for a right
    one ``mistake`` and ``true_accusation`` are null."""

    id: Text
    task: Domain
    prompt: Text
    solution: Text
    mistake: Text | None
    """The kind of mistake; None if the solution is right."""
    true_accusation: Text | None
    """An evaluation that contains this text names the mistake."""
    false_accusation: Text


def _whole(item: ProbeItem) -> ProbeItem:
    if (item.mistake is None) != (item.true_accusation is None):
        raise PydanticCustomError(
            "probe",
            "mistake and true_accusation must be both null, for a right solution, or neither",
        )
    return item


_ITEM: TypeAdapter[ProbeItem] = TypeAdapter(Annotated[ProbeItem, AfterValidator(_whole)])


def load_probe(path: Path) -> list[ProbeItem]:
    """Return the items of a JSON list or JSONL; raises DataError as ``sound_records`` does."""
    items = read_records(path, _ITEM)
    return sound_records(str(path), items, example=_EXAMPLE)
