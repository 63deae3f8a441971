"""Programs that attack the sandbox, its verdict, the machine or the caller: see hostile/.

Each file there holds programs under headings ``## name (needs x, y)``; "needs" says what has
to be on the machine to contain the program where there are no namespaces, or that it needs these:
what it does is an expected row of a degraded mode (comas/verification/sandbox/). Wherever ``f`` is
right for some argument, the attack has worked: so CHECKER passing means harm.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tables import case_file

from comas.verification.sandbox import LiteralsError, Sandbox

CHECKERS = case_file("hostile_programs")["CHECKERS"]
CHECKER = "\n".join(CHECKERS.values())
HONEST = "def f(x):\n    return x * x\n"

_FOLDER = Path(__file__).parent / "hostile"
_REPOSITORY = Path(__file__).parents[1]
_COMMON = "in front of each"


@dataclass(frozen=True)
class Hostile:
    """One attack."""

    name: str
    program: str
    needs: frozenset[str]
    """Of seccomp, landlock and namespaces."""


def passes(sandbox: Sandbox, program: str, checker: str) -> bool:
    """True if the program is judged correct: neither wrong nor failed."""
    try:
        return sandbox.run(program, checker=checker)
    except LiteralsError:
        return False


def _load(kind: str) -> list[Hostile]:
    text = (_FOLDER / f"{kind}.txt").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", text, re.MULTILINE))
    common = f"REPOSITORY = {str(_REPOSITORY)!r}\n" + sections.pop(_COMMON, "")
    hostile = []
    for heading, program in sections.items():
        name, _, needs = heading.removesuffix(")").partition(" (needs ")
        hostile.append(Hostile(name, common + program, frozenset(needs.split(", ")) - {""}))
    return hostile


FORGERIES = _load("forgeries")
"""Each passes one of CHECKERS if program and checker share a process."""
HOSTILE = [
    *FORGERIES,
    *(h for k in ("verdict", "channel", "resources", "escapes") for h in _load(k)),
]
OUTSIDE = _load("outside")
"""Each reaches for things outside; test_hostile_suite.py prepends their names."""
