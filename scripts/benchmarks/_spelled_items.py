"""Golds with right and wrong spellings: what a family of them is, and how it writes numbers.

The families, the surfaces and the draw of spellings.py were written without reading a grader.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import NamedTuple

from comas.verification import AnswerForm


class Item(NamedTuple):
    """One gold; `wrong`'s first entry is a clean answer of the same shape."""

    form: AnswerForm
    shape: str
    gold: str
    right: dict[str, str]
    wrong: dict[str, str]


Table = dict[str, str | bool]
Family = Callable[[Random], Item]
FAMILIES: list[Family] = []


def family(make: Family) -> Family:
    FAMILIES.append(make)
    return make


def item(
    name: str, shape: str, gold: str, right: Table, wrong: Table, form: AnswerForm = "math"
) -> Item:
    good = {f"{name}: {k}": str(v) for k, v in right.items() if v and v != gold}
    bad = {f"{name}: {k} (miss)": str(v) for k, v in wrong.items() if v}
    return Item(form, shape, gold, good, bad)


# ---------------------------------------------------------------- writing numbers


def pick(rng: Random, lo: int, hi: int, *avoid: int) -> int:
    """A non-zero integer of [lo, hi] outside `avoid`."""
    return rng.choice([k for k in range(lo, hi + 1) if k and k not in avoid])


def frac(q: Fraction | int, cmd: str = r"\frac") -> str:
    q, sign = Fraction(q), "-" if q < 0 else ""
    if q.denominator == 1:
        return str(q)
    return f"{sign}{cmd}{{{abs(q.numerator)}}}{{{q.denominator}}}"


def dec(q: Fraction | int) -> str:
    """The terminating decimal of q, or ''."""
    for d in range(8):
        if (Fraction(q) * 10**d).denominator == 1:
            return f"{float(q):.{d}f}"
    return ""


def repeating(q: Fraction, bar: str) -> str:
    """q as a repeating decimal with a period of at most 2 and 3 digits in all, or ''."""
    whole, rest = divmod(abs(q), 1)
    digits, seen = "", {}
    while rest and rest not in seen and len(digits) < 4:
        seen[rest] = len(digits)
        digit, rest = divmod(rest * 10, 1)
        digits += str(digit)
    start = seen.get(rest, -1)
    if not rest or start < 0 or len(digits) - start > 2 or len(digits) > 3:
        return ""
    return f"{'-' * (q < 0)}{whole}.{digits[:start]}{bar}{{{digits[start:]}}}"


def poly(*terms: tuple[int, str]) -> str:
    out = ""
    for c, m in terms:
        if c:
            sign = (" - " if c < 0 else " + ") if out else "-" * (c < 0)
            out += sign + ("" if abs(c) == 1 and m else str(abs(c))) + m
    return out or "0"


def grouped(n: int, sep: str) -> str:
    return f"{n:,}".replace(",", sep)


def ratio(rng: Random, top: int, bottom: int) -> Fraction:
    """A positive fraction that is neither an integer nor a reciprocal of one."""
    while True:
        q = Fraction(rng.randint(2, top), rng.randint(3, bottom))
        if q.denominator > 1 and q.numerator > 1:
            return q


def ends(rng: Random) -> tuple[Fraction, Fraction]:
    """Two rational ends, the first the smaller."""
    lo = Fraction(pick(rng, -18, 18), rng.choice([1, 1, 1, 2]))
    return lo, lo + Fraction(rng.randint(3, 40), rng.choice([1, 1, 2]))
