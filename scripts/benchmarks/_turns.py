"""Ways to do the same, measured in turns in one run: medians, ratios turn by turn, marks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from scripts.command import say

Numbers = dict[str, float]
"""Measurements of a way, once, by name."""
Way = Callable[[], Any]
Turns = Mapping[str, Sequence[Numbers]]
"""Measurements of each way, turn by turn."""

NO_LEAST, NO_MOST = float("-inf"), float("inf")


@dataclass
class Repeated:
    """The keys that benchmarks in turns share."""

    repeats: int = 5
    """Turns of every way."""


@dataclass(frozen=True)
class Ratio:
    """One way's number over another's, turn by turn, and the mark of its median."""

    one: str
    other: str
    number: str = "seconds"
    at_least: float = NO_LEAST
    at_most: float = NO_MOST

    def of(self, turns: Turns) -> list[float]:
        """The ratio in each turn."""
        pairs = zip(turns[self.one], turns[self.other], strict=True)
        return [one[self.number] / other[self.number] for one, other in pairs]


def take_turns(
    ways: Mapping[str, Way],
    *,
    repeats: int,
    num_warm_ups: int = 1,
    measure: Callable[[Way], Numbers] | None = None,
) -> Turns:
    """Every way ``repeats`` times, after some times that do not count; each turn in the order that
    is the reverse of the last one's. Without ``measure`` the ways give their numbers themselves."""
    turns: dict[str, list[Numbers]] = {name: [] for name in ways}
    for turn in range(-num_warm_ups, repeats):
        for name in list(ways)[:: -1 if turn % 2 else 1]:
            numbers = measure(ways[name]) if measure else ways[name]()
            if turn >= 0:
                turns[name].append(numbers)
    return turns


def timed(work: Way) -> Numbers:
    """The time of ``work``, on the clock and of all threads of this process: on one thread the
    latter is what a quiet machine would take."""
    started, cpu_started = time.perf_counter(), time.process_time()
    work()
    cpu_seconds = time.process_time() - cpu_started
    return {"seconds": time.perf_counter() - started, "CPU seconds": cpu_seconds}


class Report:
    """Results of a benchmark, printed as they come."""

    def __init__(self, arguments: Repeated) -> None:
        self._arguments = arguments
        self._is_reached = True

    def compare(
        self,
        heading: str,
        ways: Mapping[str, Way],
        *,
        ratios: Sequence[Ratio] = (),
        num_warm_ups: int = 1,
        measure: Callable[[Way], Numbers] | None = None,
    ) -> Turns:
        """Let the ways take their turns, and tell what they showed."""
        turns = take_turns(
            ways, repeats=self._arguments.repeats, num_warm_ups=num_warm_ups, measure=measure
        )
        self.add(heading, turns, ratios=ratios)
        return turns

    def add(self, heading: str, turns: Turns, *, ratios: Sequence[Ratio] = ()) -> None:
        """Tell the medians of all numbers, and ``ratios`` with their marks."""
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
        """Tell a number, and whether it is as it is to be."""
        marks = [f"at least {at_least:g}"] * (at_least > NO_LEAST)
        marks += [f"at most {at_most:g}"] * (at_most < NO_MOST)
        is_reached = at_least <= value <= at_most
        self._is_reached = self._is_reached and is_reached
        verdict = f" ({' and '.join(marks)}: {'reached' if is_reached else 'MISSED'})"
        say(line + (verdict if marks else ""))

    def end(self) -> int:
        """Return 1 if a mark is missed, else 0."""
        return int(not self._is_reached)
