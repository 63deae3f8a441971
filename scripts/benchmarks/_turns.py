"""Compares alternatives measured in turns: medians, ratios within each turn, targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from scripts.command import say

Numbers = dict[str, float]
"""Named measurements of one execution."""
Way = Callable[[], Any]
Turns = Mapping[str, Sequence[Numbers]]
"""Alternative -> its measurements in each turn."""

NO_LEAST, NO_MOST = float("-inf"), float("inf")


@dataclass
class Repeated:
    """Shared keys."""

    repeats: int = 5
    """Turns of every alternative."""


@dataclass(frozen=True)
class Ratio:
    """One alternative's number over another's, within each turn, and the target of its median."""

    one: str
    other: str
    number: str = "seconds"
    at_least: float = NO_LEAST
    at_most: float = NO_MOST

    def of(self, turns: Turns) -> list[float]:
        """Return the ratio in each turn."""
        pairs = zip(turns[self.one], turns[self.other], strict=True)
        return [one[self.number] / other[self.number] for one, other in pairs]


def take_turns(
    ways: Mapping[str, Way], *, repeats: int, measure: Callable[[Way], Numbers]
) -> Turns:
    """Measure every alternative ``repeats`` times, reversing their order in every other turn."""
    turns: dict[str, list[Numbers]] = {name: [] for name in ways}
    for turn in range(repeats):
        for name in list(ways)[:: -1 if turn % 2 else 1]:
            turns[name].append(measure(ways[name]))
    return turns


class Report:
    """Prints the results of a benchmark, and remembers missed targets."""

    def __init__(self) -> None:
        self._is_reached = True

    def add(self, heading: str, turns: Turns, *, ratios: Sequence[Ratio] = ()) -> None:
        """Print the medians of all numbers, and ``ratios`` with their targets."""
        width = max(map(len, turns))
        names = list(dict.fromkeys(name for measured in turns.values() for name in measured[0]))
        say(f"{heading}; median of {max(map(len, turns.values()))}")
        say(" ".join([" " * width, *(f"{name:>13}" for name in names)]))
        for way, measured in turns.items():
            cells = (f"{median(m[name] for m in measured):.4g}" for name in measured[0])
            say(" ".join([f"{way:{width}}", *(f"{cell:>13}" for cell in cells)]))
        for ratio in ratios:
            values = ratio.of(turns)
            self.add_mark(
                f"{ratio.one} : {ratio.other}, {ratio.number}: {median(values):.2f} x "
                f"({min(values):.2f} to {max(values):.2f})",
                median(values),
                at_least=ratio.at_least,
                at_most=ratio.at_most,
            )

    def add_mark(
        self, line: str, value: float, *, at_least: float = NO_LEAST, at_most: float = NO_MOST
    ) -> None:
        """Print a number, and whether it reaches its target."""
        marks = [f"at least {at_least:g}"] * (at_least > NO_LEAST)
        marks += [f"at most {at_most:g}"] * (at_most < NO_MOST)
        is_reached = at_least <= value <= at_most
        self._is_reached = self._is_reached and is_reached
        verdict = f" ({' and '.join(marks)}: {'reached' if is_reached else 'MISSED'})"
        say(line + (verdict if marks else ""))

    def end(self) -> int:
        """Return 1 if a target was missed, else 0."""
        return int(not self._is_reached)
