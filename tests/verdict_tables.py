"""The tables of spellings in verdicts/: headings, and a case a line, its parts between " ~ "."""

from pathlib import Path

_FOLDER = Path(__file__).parent / "verdicts"


def pairs(name: str, heading: str) -> list[tuple[str, str]]:
    """(first, other) of every line under headings that begin so, for each other part of it."""
    lines = (line.split(" ~ ") for line in _lines(name, heading))
    return [(first, other) for first, *others in lines for other in others]


def texts(name: str, heading: str) -> list[str]:
    """The first part of every line under such headings."""
    return list(dict.fromkeys(line.split(" ~ ")[0] for line in _lines(name, heading)))


def _lines(name: str, heading: str) -> list[str]:
    sections = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").split("## ")[1:]
    chosen = (part.split("\n") for part in sections if part.startswith(heading))
    return [line for _, *lines in chosen for line in lines if line]
