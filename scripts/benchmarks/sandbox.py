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
from functools import partial

from comas.verification.sandbox import Sandbox
from scripts.benchmarks._turns import Numbers, Ratio, Repeated, Report, Way
from scripts.command import read_arguments

PROGRAM = "def square(x):\n    return x * x\n"
CHECKER = "def check(candidate):\n    assert candidate(7) == 49\n\ncheck(square)\n"

Runner = Callable[[], bool]
"""Runs the program once; returns whether it passes."""


@dataclass
class Arguments(Repeated):
    programs: int = 200
    """In each measurement."""


def main(arguments: Arguments) -> None:
    """Measure, and print the ratios."""
    num_cores = len(os.sched_getaffinity(0))
    report = Report(arguments)
    with ExitStack() as stack:
        sandboxes = [stack.enter_context(Sandbox()) for _ in range(num_cores)]
        isolated = all([sandbox.start() for sandbox in sandboxes])
        runners = {
            "sandbox": [_in_sandbox(sandbox) for sandbox in sandboxes],
            "plain": [_in_plain_process] * num_cores,
        }
        ways: dict[str, Way] = {
            f"{name}, {num} at once": partial(_rate, some[:num], arguments.programs)
            for name, some in runners.items()
            for num in (1, num_cores)
        }
        kind = "with namespaces" if isolated else "WITHOUT NAMESPACES, which this machine refuses"
        report.compare(
            f"{arguments.programs} trivial programs at a time, sandbox {kind}",
            ways,
            ratios=[
                Ratio(f"sandbox, {num} at once", f"plain, {num} at once", "programs/s")
                for num in dict.fromkeys((1, num_cores))
            ],
            num_warm_ups=0,
        )
    report.end()


def _in_sandbox(sandbox: Sandbox) -> Runner:
    return lambda: sandbox.run(PROGRAM, checker=CHECKER)


def _in_plain_process() -> bool:
    command = [sys.executable, "-c", PROGRAM + CHECKER]
    return subprocess.run(command, check=False).returncode == 0


def _rate(runners: Sequence[Runner], num_programs: int) -> Numbers:
    """All runners at work at once."""

    def work(runner: Runner) -> None:
        for _ in range(num_programs // len(runners)):
            assert runner()

    started = time.perf_counter()
    with ThreadPoolExecutor(len(runners)) as pool:
        list(pool.map(work, runners))
    num_done = num_programs // len(runners) * len(runners)
    return {"programs/s": num_done / (time.perf_counter() - started)}


if __name__ == "__main__":
    main(read_arguments(Arguments, about=__doc__))
