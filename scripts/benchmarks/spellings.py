"""Equal answers in many spellings, and near misses: what the strict graders and math-verify say.

The answers are those of tests/spellings. Of the equal ones all should be accepted, of the near
misses none.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas
from math_verify import parse, verify

from comas.verification import Item, Verifier
from scripts.command import read_arguments, say

TESTS = Path(__file__).resolve().parents[2] / "tests"


@dataclass
class Arguments:
    num: int = 5000
    """Equal answers, and as many near misses."""
    seed: int = 0
    refused: int = 10
    """How many wrong verdicts to print."""


def main(arguments: Arguments) -> None:
    """Judge, and print what share of the answers is accepted, by kind."""
    sys.path.insert(0, str(TESTS))
    from spellings import cases

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    drawn = [
        case
        for is_right in (True, False)
        for case in cases(arguments.num, seed=arguments.seed, is_right=is_right)
    ]
    with Verifier() as verifier:
        verdicts = verifier.verify_batch([case.item for case in drawn])
    pairs = list(zip(drawn, verdicts, strict=True))
    wrong = [pair for pair in pairs if (pair[1] == "correct") != pair[0].is_right]
    for case, verdict in wrong[: arguments.refused]:
        say(f"{verdict}: {case.kind}, {case.item}")
    judged = pandas.DataFrame(
        {
            "kind": case.kind.split(":")[0],
            "answers": "equal" if case.is_right else "near",
            "strict": verdict == "correct",
            "bare": accepts_bare(case.item),
        }
        for case, verdict in pairs
    )
    say(table(judged))


def accepts_bare(item: Item) -> bool:
    """math-verify as it comes: both sides parsed with its defaults."""
    _, response, gold = item
    return verify(parse(f"${gold}$"), parse(response))


def table(judged: pandas.DataFrame) -> str:
    """The number of equal answers and of near misses of each kind, and the shares accepted."""
    counted = {"num": ("strict", "size"), "strict": ("strict", "mean"), "bare": ("bare", "mean")}
    rows = pandas.concat([judged, judged.assign(kind="all")])
    shares = rows.groupby(["kind", "answers"], sort=False).agg(**counted).unstack()
    shares = shares.swaplevel(axis="columns")[["equal", "near"]].sort_index(
        key=lambda kinds: [(kind == "all", kind) for kind in kinds]
    )
    written = {
        (answers, column): "{:.0f}".format if column == "num" else "{:.2%}".format
        for answers, column in shares.columns
    }
    return shares.to_string(formatters=written, na_rep="")


if __name__ == "__main__":
    main(read_arguments(Arguments, about=__doc__ or ""))
