"""Equal answers in many spellings, and near-misses: what the strict graders and math-verify say.

Every value is drawn from a seed, kind by kind, and spelled at random from a grammar.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from math_verify import parse, verify

from comas.verification import AnswerForm, Item, Verifier
from scripts.benchmarks import _spelled_numbers as numbers
from scripts.benchmarks import _spelled_values as values
from scripts.benchmarks import read_arguments
from scripts.benchmarks._spelled_numbers import Drawn

DRESSES = ["%s"] * 6 + ["%s.", "$%s$", r"\displaystyle %s", r"{%s}", r"\Large %s"]
COLOURED = [*DRESSES, r"\underline{%s}", r"\textcolor{blue}{%s}", r"\color{red}%s"]
NAMES = ["%s"] * 6 + ["x = %s", r"\text{Area} = %s", r"f(3) = %s", r"\approx %s"]

SCALARS = [
    numbers.whole_numbers,
    numbers.decimals,
    numbers.fractions,
    numbers.powers_of_ten,
    numbers.radicals,
    numbers.multiples_of_pi,
]
PLAIN_MATH = [
    numbers.complex_numbers,
    numbers.percentages,
    numbers.money,
    numbers.bases,
    numbers.angles,
    numbers.units,
    values.pairs,
    values.lists,
    values.plus_minus,
]
SETS = [values.intervals, values.unions, values.rays]
FORMULAS = [
    values.matrices,
    values.polynomials,
    values.products_of_letters,
    values.sums_of_letters,
    values.lines,
    values.words,
]
KINDS: dict[Callable[[Random], Drawn], tuple[AnswerForm, Sequence[str]]] = {
    **{draw: ("math", NAMES) for draw in SCALARS},
    **{draw: ("math", ["%s"]) for draw in [*PLAIN_MATH, *SETS, *FORMULAS]},
    values.science: ("science", ["%s"]),
    values.choices: ("choice", ["%s"]),
}
"""Each kind of value: the form that judges it, and what may stand before it."""


@dataclass(frozen=True)
class Case:
    """An answer, and whether it is right."""

    kind: str
    item: Item
    is_right: bool


def cases(num: int, *, seed: int, is_right: bool) -> list[Case]:
    """``num`` answers, the kinds in turn; the same ones for the same seed."""
    return list(islice(_draw(Random(f"{seed}/{is_right}"), is_right), num))


def _draw(rng: Random, is_right: bool) -> Iterator[Case]:
    while True:
        for draw, (form, names) in KINDS.items():
            gold, right, wrong = draw(rng)
            dressed = rng.choice(names) % (right if is_right else wrong)
            dressed = rng.choice(DRESSES if form == "choice" else COLOURED).replace("%s", dressed)
            response = rf"Hence $\boxed{{{dressed}}}$."
            yield Case(draw.__name__, (form, response, gold), is_right)


# ---------------------------------------------------------------- the table


@dataclass
class Arguments:
    num: int = 5000
    """Equal answers, and as many near-misses."""
    seed: int = 0
    refused: int = 10
    """How many wrong verdicts to print."""


def main(arguments: Arguments) -> None:
    """Judge, and print accepted answers by kind: of the equal ones all should be, of the others
    none."""
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    drawn = [
        case
        for is_right in (True, False)
        for case in cases(arguments.num, seed=arguments.seed, is_right=is_right)
    ]
    with Verifier() as verifier:
        verdicts = verifier.verify_batch([case.item for case in drawn])
    num, strict, bare = Counter[Row](), Counter[Row](), Counter[Row]()
    for case, verdict in zip(drawn, verdicts, strict=True):
        row = (case.kind, case.is_right)
        num[row] += 1
        strict[row] += verdict == "correct"
        bare[row] += accepts_bare(case)
        if (verdict == "correct") != case.is_right and arguments.refused > 0:
            arguments.refused -= 1
            sys.stdout.write(f"{verdict}: {case.kind}, {case.item}\n")
    write_table(num, strict, bare)


Row = tuple[str, bool]
"""The kind, and whether the answers are right."""


def accepts_bare(case: Case) -> bool:
    """math-verify as it comes: both sides parsed with its defaults."""
    _, response, gold = case.item
    return verify(parse(f"${gold}$"), parse(response))


def write_table(num: Counter[Row], strict: Counter[Row], bare: Counter[Row]) -> None:
    columns = "".join(f" {name:>6} {'strict':>7} {'bare':>7}  " for name in ("equal", "near"))
    sys.stdout.write(f"{'kind':<20}{columns.rstrip()}\n")
    for kind in [*(draw.__name__ for draw in KINDS), ""]:
        cells = ""
        for is_right in (True, False):
            total, ours, theirs = (
                sum(
                    n for row, n in counts.items() if row[0].startswith(kind) and row[1] == is_right
                )
                for counts in (num, strict, bare)
            )
            cells += f" {total:>6} {ours / total:>7.2%} {theirs / total:>7.2%}  "
        sys.stdout.write(f"{kind or 'all':<20}{cells.rstrip()}\n")


if __name__ == "__main__":
    main(read_arguments(Arguments, about=__doc__))
