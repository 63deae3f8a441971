"""The table of families, families.yaml: drawing an answer of one, and writing its spellings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, lru_cache
from math import comb, perm, pi, sqrt
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any

import yaml

from comas.verification import AnswerForm

TABLE = Path(__file__).with_name("families.yaml")
FLIPPED = {"(": "[", "[": "(", ")": "]", "]": ")"}
OUTWARD = {"(": "]", "[": "[", ")": "[", "]": "]"}
"""The delimiters of an interval as they are written in France: ``]0, 1[`` is open."""


class LeftOutError(Exception):
    """A spelling that this answer does not have."""


@dataclass(frozen=True)
class Family:
    """Answers that are spelled in the same ways; the fields are those of the table."""

    name: str
    shape: str
    draw: CodeType
    gold: list[str]
    right: list[str]
    wrong: list[str]
    form: AnswerForm = "math"


@dataclass
class Answer:
    """One of a family."""

    family: Family
    rng: Random
    values: dict[str, Any] = field(init=False)
    gold: str = field(init=False)

    def __post_init__(self) -> None:
        drawing = ("choice", "sample", "randint", "random")
        self.values = NAMES | {name: getattr(self.rng, name) for name in drawing}
        self.values |= {"pick": self._pick, "ratio": self._ratio}
        exec(self.family.draw, self.values)
        self.gold = self.spelled(self.rng.choice(self.family.gold))

    @property
    def other(self) -> str:
        """A clean wrong answer of the same shape."""
        return self.spelled(self.family.wrong[0])

    def spelled(self, template: str) -> str:
        """``template`` with its expressions computed; raises LeftOutError."""
        return re.sub("«(.+?)»", lambda part: str(eval(_code(part[1]), self.values)), template)

    def _pick(self, low: int, high: int, *avoided: int) -> int:
        """An integer of [low, high], neither 0 nor avoided."""
        return self.rng.choice([k for k in range(low, high + 1) if k and k not in avoided])

    def _ratio(self, top: int, bottom: int) -> Fraction:
        """A positive fraction that is neither an integer nor a reciprocal of one."""
        while True:
            q = Fraction(self.rng.randint(2, top), self.rng.randint(3, bottom))
            if q.denominator > 1 and q.numerator > 1:
                return q


@lru_cache(maxsize=1)
def families() -> list[Family]:
    """All of the table."""
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [
        Family(
            name,
            row["shape"],
            compile(row["draw"], name, "exec"),
            **{part: _templates(row[part]) for part in ("gold", "right", "wrong")},
            form=row.get("form", "math"),
        )
        for name, row in table.items()
    ]


def _templates(cell: str) -> list[str]:
    return [text.strip() for line in cell.splitlines() for text in line.split(" | ")]


@cache
def _code(expression: str) -> CodeType:
    return compile(expression, expression, "eval")


# ---------------------------------------------------------------- what the table calls


def given(condition: object) -> str:
    """Nothing, where the spelling is there at all."""
    if not condition:
        raise LeftOutError
    return ""


def terminates(q: Fraction) -> bool:
    """Whether q has a decimal of at most seven places."""
    return (q * 10**7).denominator == 1


def dec(q: Fraction | int) -> str:
    """The decimal of q, if it terminates."""
    given(terminates(Fraction(q)))
    places = next(d for d in range(8) if (Fraction(q) * 10**d).denominator == 1)
    return fixed(q, places)


def fixed(q: Fraction | float, places: int) -> str:
    """q with so many decimal places."""
    return f"{float(q):.{places}f}"


def significant(q: Fraction) -> str:
    """q with four significant digits, if that needs no exponent."""
    text = f"{float(q):.4g}"
    given("e" not in text)
    return text


def repeating(q: Fraction, bar: str) -> str:
    """q > 0 as a repeating decimal, if its period has at most 2 digits and all are at most 3."""
    whole, rest = divmod(q, 1)
    digits = ""
    seen: dict[Fraction, int] = {}
    while rest and rest not in seen and len(digits) < 4:
        seen[rest] = len(digits)
        digit, rest = divmod(rest * 10, 1)
        digits += str(digit)
    start = seen.get(rest, 0)
    given(rest in seen and len(digits) - start <= 2 and len(digits) <= 3)
    return f"{whole}.{digits[:start]}{bar}{{{digits[start:]}}}"


def frac(q: Fraction) -> str:
    """q in TeX."""
    if q.denominator == 1:
        return str(q)
    return rf"{'-' * (q < 0)}\frac{{{abs(q.numerator)}}}{{{q.denominator}}}"


def poly(*terms: tuple[int, str]) -> str:
    """``poly((2, "x"), (0, "y"), (-1, "z")) == "2x - z"``"""
    out = ""
    for factor, term in terms:
        if factor:
            sign = (" - " if factor < 0 else " + ") if out else "-" * (factor < 0)
            out += sign + ("" if abs(factor) == 1 and term else str(abs(factor))) + term
    return out or "0"


NAMES: dict[str, Any] = {
    **{f.__name__: f for f in (Fraction, comb, perm, sqrt, given, terminates, dec, fixed)},
    **{f.__name__: f for f in (significant, repeating, frac, poly)},
    "pi": pi,
    "FLIPPED": FLIPPED,
    "OUTWARD": OUTWARD,
    "plus": lambda n: f"{n:+d}",
    "grouped": lambda n, separator: f"{n:,}".replace(",", separator),
    "listed": lambda values: ", ".join(map(str, values)),
}
"""Names that an expression of the table may use, beside what is drawn and the ways to draw."""
