"""Tables of test cases. Long ones are in cases/: in text files, one case per line under headings,
with parts separated by " ~ "; in YAML files, under the name of the test."""

from collections.abc import Callable, Sequence
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from _pytest.mark.structures import ParameterSet

MOST_TESTS = 10
"""Rows that are tests of their own."""
_FOLDER = Path(__file__).parent / "cases"
_Test = TypeVar("_Test", bound=Callable[..., object])


def cases(names: str, *rows: Any, **options: Any) -> Callable[[_Test], _Test]:
    """Parametrise a test with ``rows``, or by default with those in the YAML file of its module.

    Many rows of a test without fixtures are one test, which saves pytest's work for each.
    """

    def parametrised(test: _Test) -> _Test:
        module = test.__module__.rpartition(".")[2].removeprefix("test_")
        found = rows or case_file(module)[test.__name__]
        wanted = [name.strip() for name in names.split(",")]
        is_plain = not any(isinstance(row, ParameterSet) for row in found) and not options
        if len(found) > MOST_TESTS and is_plain and wanted == [*signature(test).parameters]:
            return _together(test, [row if len(wanted) > 1 else (row,) for row in found])
        return pytest.mark.parametrize(names, found, **options)(test)

    return parametrised


def _together(test: _Test, rows: Sequence[Sequence[Any]]) -> _Test:
    """A test that calls ``test`` with every row, and fails with the errors of all that fail."""

    def with_every_row() -> None:
        errors = []
        for row in rows:
            try:
                test(*row)
            except (Exception, pytest.fail.Exception) as error:
                error.add_note(f"with {row}")
                errors.append(error)
        if errors:
            raise BaseExceptionGroup(f"{len(errors)} of {len(rows)} rows fail", errors)

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(with_every_row, name, getattr(test, name))
    with_every_row.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
    return with_every_row  # type: ignore[return-value]


@cache
def case_file(name: str) -> Any:
    """The content of a YAML file in cases/: rows by test, and constants by name."""
    return yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def pairs(name: str, heading: str) -> list[tuple[str, str]]:
    """(first, other) for each other part of each line, under headings that begin so."""
    return [(first, other) for first, *others in parts(name, heading) for other in others]


def texts(name: str, heading: str) -> list[str]:
    """The first part of each line under such headings."""
    return list(dict.fromkeys(first for first, *_ in parts(name, heading)))


def parts(name: str, heading: str) -> list[list[str]]:
    """All parts of each line under such headings."""
    sections = f"\n{(_FOLDER / f'{name}.txt').read_text(encoding='utf-8')}".split("\n## ")[1:]
    chosen = (part.split("\n") for part in sections if part.startswith(heading))
    return [line.split(" ~ ") for _, *lines in chosen for line in lines if line]
