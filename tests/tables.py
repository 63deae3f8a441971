"""Tables of cases: a test is run with every row. Long ones are in cases/: headings, and a case a
line, its parts between " ~ "."""

from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parent / "cases"


def cases(names: str, *rows: Any, **options: Any) -> pytest.MarkDecorator:
    """Parametrise a test with ``rows``, as ``pytest.mark.parametrize`` does."""
    return pytest.mark.parametrize(names, rows, **options)


def pairs(name: str, heading: str) -> list[tuple[str, str]]:
    """(first, other) of every line under headings that begin so, for each other part of it."""
    return [(first, other) for first, *others in parts(name, heading) for other in others]


def texts(name: str, heading: str) -> list[str]:
    """The first part of every line under such headings."""
    return list(dict.fromkeys(first for first, *_ in parts(name, heading)))


def parts(name: str, heading: str) -> list[list[str]]:
    """All parts of every line under such headings."""
    sections = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").split("## ")[1:]
    chosen = (part.split("\n") for part in sections if part.startswith(heading))
    return [line.split(" ~ ") for _, *lines in chosen for line in lines if line]
