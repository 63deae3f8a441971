"""Changes of any answer (surfaces.yaml): surfaces keep it, frames make it wrong, and prose."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import yaml

from spellings.families import Answer

Surface = Callable[[str, Random], str]
"""Gives its argument back where it does not apply."""

TABLE = yaml.safe_load(Path(__file__).with_name("surfaces.yaml").read_text(encoding="utf-8"))
LEAD = "lead: name of the unknown"
NESTED, SPACED = "box: nested", "box: space before brace"


def _rewriting(kept: str, pattern: str, to: str) -> Surface:
    return lambda s, rng: s if re.search(kept, s) else re.sub(pattern, to, s)


def _frame(frame: str, suits: str) -> Surface:
    return lambda s, rng: frame.replace("@", s) if re.fullmatch(suits, s, re.DOTALL) else s


def _delimiters(left: str, right: str) -> Surface:
    """Sizes before the delimiters, where these are simple pairs."""

    def apply(s: str, rng: Random) -> str:
        marks = re.findall(r"\\[{}]|[()\[\]]", s)
        is_paired = {*marks[::2]} <= {"(", "[", r"\{"} and {*marks[1::2]} <= {")", "]", r"\}"}
        if not is_paired or len(marks) % 2 or re.search(r"\\(text|left|sqrt\[|b|\()", s):
            return s
        turn = iter(range(len(marks)))
        return re.sub(r"\\[{}]|[()\[\]]", lambda m: (right if next(turn) % 2 else left) + m[0], s)

    return apply


SURFACES: dict[str, Surface] = {
    **{
        f"{group}: {pattern} -> {to}": _rewriting(kept, pattern, to)
        for group, by_answer in TABLE["rewritings"].items()
        for kept, rewritings in by_answer.items()
        for pattern, to in rewritings
    },
    **{
        f"{group}: {frame}": _frame(frame, suits)
        for group, by_answer in TABLE["frames"].items()
        for suits, frames in by_answer.items()
        for frame in frames
    },
    **{f"delimiters: {left}": _delimiters(left, right) for left, right in TABLE["delimiters"]},
}


def dress(answer: Answer, body: str, surface: str) -> str:
    """``body`` after the surface of that name, unchanged where this does not apply."""
    if surface in (NESTED, SPACED):
        return body  # done by `boxed`
    if surface != LEAD:
        return SURFACES[surface](body, answer.rng)
    leads = TABLE["leads"].get(answer.family.shape)
    if leads is None or re.search(r"[=<>:$]|\\in |\\approx|setminus|Total", body):
        return body
    return answer.rng.choice(leads) + body


def respond(answer: Answer, ending: str, body: str, kinds: list[str]) -> str:
    """A whole response that ends with ``body`` in a box."""
    rng = answer.rng
    middles = TABLE["choice_middles" if answer.family.form == "choice" else "middles"]
    text = "" if ending == "{box}" else rng.choice(TABLE["openings"]) + rng.choice(middles)
    text += ending
    a, b, c = rng.randint(2, 40), rng.randint(2, 60), rng.randint(61, 400)
    for mark, number in (("%a", a), ("%b", b), ("%c", c), ("%d", a + b), ("%e", a * b)):
        text = text.replace(mark, str(number))
    box = rf"\boxed {{{body}}}" if SPACED in kinds else rf"\boxed{{{body}}}"
    parts = {
        "{box}": rf"\boxed{{{box}}}" if NESTED in kinds else box,
        "{obox}": rf"\boxed{{{answer.other}}}",
        "{other}": answer.other,
        "{gbox}": rf"\boxed{{{answer.gold}}}",
        "{gold}": answer.gold,
    }
    return re.sub("|".join(map(re.escape, parts)), lambda part: parts[part[0]], text)
