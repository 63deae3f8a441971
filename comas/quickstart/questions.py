"""Endless small questions with exact answers, one family a domain.

| domain | question | answer |
|---|---|---|
| math | What is 48 + 23? | 71 |
| science | How many minutes are 7 h 43 min? | 463 |
| coding | Write count(), ... assert count() == len(range(4, 41)) | checker code |

A hash of the numbers decides which questions are held out. So a held-out question has no twin to
train on that says the same in other words (23 + 48, or 7 min 43 s in seconds), and no family has
a rule by which the held-out ones differ (withholding every sum with a certain last digit would).
"""

import zlib
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from comas.types import DOMAINS, Domain

HELD_OUT_ONE_IN = 5
CARRY_FREE_KEPT = 0.3

_CODING_TEST = "def test_count():\n    assert count() == len(range({first}, {end}))"
_CODING_QUESTION = f"Write count(), which returns how many numbers the range has.\n\n{_CODING_TEST}"
_UNITS = (("minutes", "h", "min"), ("seconds", "min", "s"))


class Problem(NamedTuple):
    """A question with its answer, and the two numbers in it from which solutions are worked.

    Example: ``Problem("math", "What is 48 + 23?", "71", (48, 23))``
    """

    domain: Domain
    text: str
    answer: str
    """In the format of the real data: a number, or for coding runnable checker code."""
    numbers: tuple[int, int]

    @property
    def deciding(self) -> tuple[int, ...]:
        """What decides the answer: the numbers, of which only a sum may be asked either way."""
        return tuple(sorted(self.numbers))


def draw_problem(rng: Random, *, domain: Domain, held_out: bool) -> Problem:
    """A random problem of ``domain`` from one side of the split."""
    while True:
        problem = _DRAW[domain](rng)
        if is_held_out(problem) == held_out:
            return problem


def is_held_out(problem: Problem) -> bool:
    """Whether the question is never trained on: one in five, by a hash of what decides it."""
    return zlib.crc32(f"{problem.domain} {problem.deciding}".encode()) % HELD_OUT_ONE_IN == 0


def records(*, seed: int, held_out: bool, num_per_domain: int) -> list[dict[str, str]]:
    """Distinct questions in the record format of the real data, the domains in turn.

    Example: ``{"prompt": "What is 48 + 23?", "answer": "71", "task": "math",
    "source": "quickstart", "id": "train-math-0"}``
    """
    split = "validation" if held_out else "train"
    rng = Random(f"{seed}/{split}")
    drawn: dict[Domain, dict[str, Problem]] = {domain: {} for domain in DOMAINS}
    for domain, problems in drawn.items():
        while len(problems) < num_per_domain:
            problem = draw_problem(rng, domain=domain, held_out=held_out)
            problems.setdefault(problem.text, problem)
    rows = zip(*(problems.values() for problems in drawn.values()), strict=True)
    return [
        {
            "prompt": problem.text,
            "answer": problem.answer,
            "task": problem.domain,
            "source": "quickstart",
            "id": f"{split}-{problem.domain}-{index}",
        }
        for index, row in enumerate(rows)
        for problem in row
    ]


def _draw_sum(rng: Random) -> Problem:
    """Two two-digit numbers; most sums carry, as some mistakes show only there."""
    while True:
        a, b = rng.randint(10, 99), rng.randint(10, 99)
        if a % 10 + b % 10 >= 10 or rng.random() < CARRY_FREE_KEPT:
            return Problem("math", f"What is {a} + {b}?", str(a + b), (a, b))


def _draw_conversion(rng: Random) -> Problem:
    """Hours or minutes to their sixtieth; without the rest the answer is over 5 % off."""
    wanted, large, small = rng.choice(_UNITS)
    a = rng.randint(2, 9)
    b = rng.randint(max(10, 4 * a), 99)
    text = f"How many {wanted} are {a} {large} {b} {small}?"
    return Problem("science", text, str(60 * a + b), (a, b))


def _draw_function(rng: Random) -> Problem:
    """A function to write; as in the paper's data the prompt ends with its unit test."""
    first = rng.randint(2, 29)
    end = first + rng.randint(3, 69)
    numbers: dict[str, Any] = {"first": first, "end": end}
    checker = f"{_CODING_TEST.format(**numbers)}\n\ntest_count()\n"
    return Problem("coding", _CODING_QUESTION.format(**numbers), checker, (first, end))


_DRAW: dict[Domain, Callable[[Random], Problem]] = {
    "math": _draw_sum,
    "science": _draw_conversion,
    "coding": _draw_function,
}
