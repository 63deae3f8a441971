"""The code sandbox against a plain Python process for each program, in one run.

sandbox  a warm server forks two contained processes, program and checker (what is used)
plain    a new interpreter runs the program with its checker appended, uncontained
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from comas.verification.sandbox import Sandbox
from scripts.benchmarks import read_arguments

PROGRAM = "def square(x):\n    return x * x\n"
CHECKER = "def check(candidate):\n    assert candidate(7) == 49\n\ncheck(square)\n"

Runner = Callable[[], bool]
"""Runs the program once; returns whether it passes."""


@dataclass
class Arguments:
    programs: int = 200
    """In each measurement."""
    repeats: int = 5


def main(arguments: Arguments) -> None:
    """Measure, and print the ratios."""
    num_cores = len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        sandboxes = [stack.enter_context(Sandbox()) for _ in range(num_cores)]
        isolated = all([sandbox.start() for sandbox in sandboxes])
        runners = {
            "sandbox": [_in_sandbox(sandbox) for sandbox in sandboxes],
            "plain": [_in_plain_process] * num_cores,
        }
        ways = {(name, num): some[:num] for name, some in runners.items() for num in (1, num_cores)}
        rates: dict[tuple[str, int], list[float]] = {way: [] for way in ways}
        for _ in range(arguments.repeats):
            for way, some in ways.items():
                rates[way].append(_rate(some, arguments.programs))
    kind = "with namespaces" if isolated else "WITHOUT NAMESPACES, which this machine refuses"
    sys.stdout.write(_report(arguments, kind, rates) + "\n")


def _in_sandbox(sandbox: Sandbox) -> Runner:
    return lambda: sandbox.run(PROGRAM, checker=CHECKER)


def _in_plain_process() -> bool:
    command = [sys.executable, "-c", PROGRAM + CHECKER]
    return subprocess.run(command, check=False).returncode == 0


def _rate(runners: Sequence[Runner], num_programs: int) -> float:
    """Programs a second, all runners at work at once."""

    def work(runner: Runner) -> None:
        for _ in range(num_programs // len(runners)):
            assert runner()

    started = time.perf_counter()
    with ThreadPoolExecutor(len(runners)) as pool:
        list(pool.map(work, runners))
    num_done = num_programs // len(runners) * len(runners)
    return num_done / (time.perf_counter() - started)


def _report(arguments: Arguments, kind: str, rates: dict[tuple[str, int], list[float]]) -> str:
    lines = [
        f"programs a second, {arguments.programs} trivial programs at a time, median of "
        f"{arguments.repeats} (lowest to highest); sandbox {kind}"
    ]
    for (name, num), measured in rates.items():
        lines.append(
            f"{name:8} {num:2} at once  {median(measured):6.1f}  "
            f"({min(measured):.1f} to {max(measured):.1f})"
        )
    for num in dict.fromkeys(num for _, num in rates):
        ratios = [s / p for s, p in zip(rates["sandbox", num], rates["plain", num], strict=True)]
        lines.append(
            f"sandbox against plain, {num} at once: {median(ratios):.2f} x "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main(read_arguments(Arguments, about=__doc__))
