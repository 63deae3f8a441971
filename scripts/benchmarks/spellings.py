"""Equal answers in many spellings, and near-misses: what the strict graders and math-verify say.

A family draws a gold with its own right and wrong spellings; what may be done to any answer
(surfaces, frames, prose) is put around these at random. The families and all that were written
by somebody who had not read the graders, and none is to be fitted to them.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from random import Random

from math_verify import parse, verify

import scripts.benchmarks._spelled_expressions
import scripts.benchmarks._spelled_forms
import scripts.benchmarks._spelled_numbers
import scripts.benchmarks._spelled_values
import scripts.benchmarks._spelled_words  # noqa: F401  (each registers its families)
from comas.verification import Item as Judged
from comas.verification import Verifier
from scripts.benchmarks import read_arguments
from scripts.benchmarks._spelled_items import FAMILIES, Family, Item
from scripts.benchmarks._spelled_surfaces import (
    ALL,
    ANY_WRONG,
    ENDINGS,
    LEAD_KIND,
    NEUTRAL,
    PROSE_RIGHT,
    PROSE_WRONG,
    SURFACES,
    dress,
    respond,
)

GOLD_HABITS = (
    *("delimiters: left right", "fraction: bare digits", "root: bare digit"),
    *("fraction: dfrac", "space: operators tight", "power: braces"),
)


@dataclass(frozen=True)
class Case:
    """An answer, and whether it is right."""

    kind: str
    """The spelling that was drawn, and what was done to it beside that, joined by " + "."""
    item: Judged
    is_right: bool


def cases(num: int, *, seed: int, is_right: bool) -> list[Case]:
    """``num`` answers, all kinds with even weight; the same ones for the same seed."""
    return list(islice(_draw(Random(f"{seed}/{is_right}"), is_right), num))


def _draw(rng: Random, is_right: bool) -> Iterator[Case]:
    kinds = sorted(registry()[0 if is_right else 1])
    while True:
        yield (equivalent if is_right else near_miss)(rng, rng.choice(kinds))


def more(
    rng: Random, it: Item, body: str, names: list[str], count: int, groups: tuple[str, ...]
) -> str:
    """Apply up to ``count`` further surfaces from other groups, noting their names."""
    for name in rng.sample([*sorted(SURFACES), LEAD_KIND], 3 * count):
        group = name.split(":")[0]
        if len(names) > count or (groups and group not in groups):
            continue
        if any(n.startswith(group + ":") for n in names) or it.form == "choice":
            continue
        new = dress(rng, it, body, name)
        if new != body or group == "box":
            names.append(name)
            body = new
    return body


@lru_cache(maxsize=1)
def registry() -> tuple[dict[str, list[Family]], dict[str, list[Family]]]:
    """The families in which each kind of equivalent and of near-miss occurs."""
    rng, right, wrong = Random(0), dict[str, list[Family]](), dict[str, list[Family]]()
    for make in FAMILIES:
        items = [make(rng) for _ in range(80)]
        shapes = {it.shape for it in items}
        good = {k for it in items for k in it.right} | {f"prose: {k}" for k in PROSE_RIGHT}
        bad = {k for it in items for k in it.wrong} | {f"prose: {k} (miss)" for k in PROSE_WRONG}
        if "choice" not in shapes:
            good |= {
                s
                for s in [*SURFACES, LEAD_KIND]
                if s.startswith("box")
                or any(
                    dress(rng, it, b, s) != b for it in items for b in (it.gold, *it.right.values())
                )
            }
            bad |= {
                f"any: {k} (miss)"
                for k, (sh, _) in ANY_WRONG.items()
                if sh == ALL or shapes & set(sh)
            }
        for table, kinds in ((right, good), (wrong, bad)):
            for kind in sorted(kinds):
                table.setdefault(kind, []).append(make)
    return right, wrong


def draw(rng: Random, makers: list[Family]) -> Item:
    """An item, its gold at times in another spelling found in data sets."""
    it = rng.choice(makers)(rng)
    if it.form == "math" and rng.random() < 0.3:
        return it._replace(gold=SURFACES[rng.choice(GOLD_HABITS)](it.gold, rng))
    return it


def equivalent(rng: Random, kind: str) -> Case:
    """A right answer of this kind."""
    while True:
        it = draw(rng, registry()[0][kind])
        sources = [("", it.gold), *it.right.items()]
        if kind in it.right:
            source, body = "", it.right[kind]
        else:
            source, body = rng.choice([sources[0], rng.choice(sources)])
        if kind in SURFACES or kind == LEAD_KIND:
            old, body = body, dress(rng, it, body, kind)
            if body == old and not kind.startswith("box:"):
                continue
        elif kind not in it.right and not kind.startswith("prose: "):
            continue
        names = [kind, source] if source else [kind]
        body = more(rng, it, body, names, rng.choice([0, 1, 1, 2]), ())
        label = " + ".join(names)
        ending = PROSE_RIGHT.get(kind.removeprefix("prose: "), rng.choice(ENDINGS))
        return Case(label, (it.form, respond(rng, it, ending, body, label), it.gold), True)


def near_miss(rng: Random, kind: str) -> Case:
    """A wrong answer of this kind."""
    name = kind.split(": ", 1)[1].removesuffix(" (miss)")
    while True:
        it = draw(rng, registry()[1][kind])
        other, ending = next(iter(it.wrong.values())), rng.choice(ENDINGS)
        if kind.startswith("prose: "):
            response = respond(rng, it, PROSE_WRONG[name], "", "")
            return Case(kind, (it.form, response, it.gold), False)
        if kind.startswith("any: "):
            shapes, frame = ANY_WRONG[name]
            if shapes != ALL and it.shape not in shapes:
                continue
            body = "".join({"@": it.gold, "#": other}.get(c, c) for c in frame)
        elif kind in it.wrong:
            body = it.wrong[kind]
        else:
            continue
        names = [kind]
        body = more(rng, it, body, names, rng.choice([0, 0, 1]), NEUTRAL) if body.strip() else body
        label = " + ".join(names)
        return Case(label, (it.form, respond(rng, it, ending, body, label), it.gold), False)


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
        row = (case.kind.split(":")[0], case.is_right)
        num[row] += 1
        strict[row] += verdict == "correct"
        bare[row] += accepts_bare(case)
        if (verdict == "correct") != case.is_right and arguments.refused > 0:
            arguments.refused -= 1
            sys.stdout.write(f"{verdict}: {case.kind}, {case.item}\n")
    write_table(num, strict, bare)


Row = tuple[str, bool]
"""The group of kinds, and whether the answers are right."""


def accepts_bare(case: Case) -> bool:
    """math-verify as it comes: both sides parsed with its defaults."""
    _, response, gold = case.item
    return verify(parse(f"${gold}$"), parse(response))


def write_table(num: Counter[Row], strict: Counter[Row], bare: Counter[Row]) -> None:
    columns = "".join(f" {name:>6} {'strict':>7} {'bare':>7}  " for name in ("equal", "near"))
    sys.stdout.write(f"{'kind':<20}{columns.rstrip()}\n")
    for kind in [*sorted({kind for kind, _ in num}), ""]:
        cells = ""
        for is_right in (True, False):
            total, ours, theirs = (
                sum(n for row, n in counts.items() if kind in ("", row[0]) and row[1] == is_right)
                for counts in (num, strict, bare)
            )
            shares = f"{ours / total:>7.2%} {theirs / total:>7.2%}" if total else f"{'':>15}"
            cells += f" {total:>6} {shares}  "
        sys.stdout.write(f"{kind or 'all':<20}{cells.rstrip()}\n")


if __name__ == "__main__":
    main(read_arguments(Arguments, about=__doc__))
