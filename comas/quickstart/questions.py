"""Endless small questions with exact answers: one family per domain, in three wordings.

| domain | question | answer |
|---|---|---|
| math | What is 48 + 23? | 71 |
| science | How many minutes are 7 h 43 min? | 463 |
| coding | Write count(), ... assert count() == len(range(4, 41)) | checker code |

A hash of the numbers decides which questions are held out. So no training question says the same
as a held-out one in other words (23 + 48, or 7 min 43 s in seconds), and held-out questions follow
no rule, such as a certain last digit.
"""

import zlib
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from comas.types import DOMAINS, Domain

HELD_OUT_ONE_IN = 5
CARRY_FREE_KEPT = 0.1
NUM_WORDINGS = 3
"""Wordings per domain."""

_CODING = "Write {name}(), which returns how many numbers the range has."
_CODING_TEST = "def test_{name}():\n    assert {name}() == len(range({first}, {end}))"


class Sum(NamedTuple):
    """A wording of sums, and how their solutions start."""

    question: str
    start: str


class Unit(NamedTuple):
    """The wanted unit, and the given ones: a large one and its sixtieth."""

    wanted: str
    large: str
    small: str


SUMS = (
    Sum("What is {} + {}?", "The result"),
    Sum("Add {} and {}.", "Adding"),
    Sum("Find the sum of {} and {}.", "The sum"),
)
UNITS = (
    Unit("minutes", "h", "min"),
    Unit("seconds", "min", "s"),
    Unit("arc minutes", "degrees", "arcmin"),
)
FUNCTIONS = ("count", "size", "total")


class Problem(NamedTuple):
    """A question, its answer, and the two numbers from which solutions are computed.

    Example: ``Problem("math", "What is 48 + 23?", "71", (48, 23), wording=0)``
    """

    domain: Domain
    text: str
    answer: str
    """The answer, as in the real data: a number, or for coding a checker program."""
    numbers: tuple[int, int]
    wording: int
    """Index into ``SUMS``, ``UNITS`` or ``FUNCTIONS``."""


def draw_problem(rng: Random, *, domain: Domain, held_out: bool) -> Problem:
    """Return a random problem of ``domain`` from one side of the split."""
    while True:
        problem = _make_problem(domain, _DRAW[domain](rng), rng.randrange(NUM_WORDINGS))
        if is_held_out(problem) == held_out:
            return problem


def is_held_out(problem: Problem) -> bool:
    """True for the one question in five that is never trained on, by a hash of its domain and its
    numbers in any order."""
    deciding = f"{problem.domain} {tuple(sorted(problem.numbers))}"
    return zlib.crc32(deciding.encode()) % HELD_OUT_ONE_IN == 0


def records(*, seed: int, held_out: bool, num_per_domain: int) -> list[dict[str, str]]:
    """Distinct questions in the record format of the real data, cycling through the domains.

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


def _make_problem(domain: Domain, numbers: tuple[int, int], wording: int) -> Problem:
    """Return the problem with these numbers, in one of the domain's wordings."""
    a, b = numbers
    match domain:
        case "math":
            text, answer = SUMS[wording].question.format(a, b), str(a + b)
        case "science":
            unit = UNITS[wording]
            text = f"How many {unit.wanted} are {a} {unit.large} {b} {unit.small}?"
            answer = str(60 * a + b)
        case _:
            name = FUNCTIONS[wording]
            test = _CODING_TEST.format(name=name, first=a, end=b)
            text = f"{_CODING.format(name=name)}\n\n{test}"
            answer = f"{test}\n\ntest_{name}()\n"
    return Problem(domain, text, answer, numbers, wording)


def _draw_sum(rng: Random) -> tuple[int, int]:
    """Return two two-digit numbers; most sums carry, because some mistakes show only then."""
    while True:
        a, b = rng.randint(10, 99), rng.randint(10, 99)
        if a % 10 + b % 10 >= 10 or rng.random() < CARRY_FREE_KEPT:
            return a, b


def _draw_conversion(rng: Random) -> tuple[int, int]:
    """Return a large and a small unit; without the small one the answer is over 5 % off."""
    a = rng.randint(2, 9)
    return a, rng.randint(max(10, 4 * a), 99)


def _draw_range(rng: Random) -> tuple[int, int]:
    first = rng.randint(2, 29)
    return first, first + rng.randint(3, 69)


_DRAW: dict[Domain, Callable[[Random], tuple[int, int]]] = {
    "math": _draw_sum,
    "science": _draw_conversion,
    "coding": _draw_range,
}
