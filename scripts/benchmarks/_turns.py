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


@dataclass
class Repeated:
    """Shared keys."""

    repeats: int = 5
    """Turns of every alternative."""


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

    def add(self, heading: str, turns: Turns) -> None:
        """Print the medians of all numbers."""
        width = max(map(len, turns))
        names = list(dict.fromkeys(name for measured in turns.values() for name in measured[0]))
        say(f"{heading}; median of {max(map(len, turns.values()))}")
        say(" ".join([" " * width, *(f"{name:>13}" for name in names)]))
        for way, measured in turns.items():
            cells = (f"{median(m[name] for m in measured):.4g}" for name in measured[0])
            say(" ".join([f"{way:{width}}", *(f"{cell:>13}" for cell in cells)]))

    def add_ratio(
        self, turns: Turns, one: str, other: str, number: str = "seconds", at_least: float = 0.0
    ) -> None:
        """Print one alternative's number over another's, within each turn; its median has the
        target ``at_least``."""
        pairs = zip(turns[one], turns[other], strict=True)
        values = [mine[number] / theirs[number] for mine, theirs in pairs]
        line = f"{one} : {other}, {number}: {median(values):.2f} x "
        line += f"({min(values):.2f} to {max(values):.2f})"
        if at_least:
            self.add_target(line, f"at least {at_least:g}", median(values) >= at_least)
        else:
            say(line)

    def add_target(self, line: str, target: str, is_reached: bool) -> None:
        """Print a line with its target, and whether it is reached."""
        self._is_reached = self._is_reached and is_reached
        say(f"{line} ({target}: {'reached' if is_reached else 'MISSED'})")

    def end(self) -> int:
        """Return 1 if a target was missed, else 0."""
        return int(not self._is_reached)
