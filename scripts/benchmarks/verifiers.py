"""Answers judged a second: the pool of worker processes against a loop in one process.

Every answer is another, so that no cache helps.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import get_args

from comas.verification import AnswerForm, Grader, Item, Verifier
from comas.verification.verifiers import verify
from scripts.command import read_arguments, say

MAX_POOLED = 50_000
"""Items given to the pool at most: some seconds' work, where a loop judges millions a second."""

RESPONSES: dict[AnswerForm, tuple[Callable[[int], str], str]] = {
    "math": (lambda n: rf"So it is $\boxed{{\frac{{{n}\sqrt{{3}}}}{{7}}}}$.", r"\frac{5\sqrt3}{7}"),
    "science": (lambda n: rf"So it is $\boxed{{{n}.5 \times 10^{{-3}}}}$.", "0.0065"),
    "coding": (lambda n: f"```python\ndef f(x):\n    return x + {n}\n```", "assert f(1) == 6"),
    "choice": (lambda n: rf"Step {n}. So it is $\boxed{{\text{{(B)}}}}$.", "B"),
}
"""form -> (the n-th response, the gold)."""


@dataclass
class Arguments:
    workers: int = len(os.sched_getaffinity(0))
    seconds: float = 3.0
    """For each form and grader, about."""


def main(arguments: Arguments) -> None:
    """Measure, and print a table."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)

    say(f"{'grader':<10} {'form':<8} {'loop/s':>9} {'pool/s':>9} {'ratio':>6}")
    with Verifier(num_workers=arguments.workers) as verifier:
        for grader in get_args(Grader):
            for form in RESPONSES:
                items = answers(form)
                looped = loop_rate(items, grader, seconds=arguments.seconds)
                num = min(int(looped * arguments.seconds) + 1, MAX_POOLED)
                pooled = pool_rate(verifier, items, grader, num=num)
                rates = f"{looped:>9.0f} {pooled:>9.0f} {pooled / looped:>6.2f}"
                say(f"{grader:<10} {form:<8} {rates}")


def answers(form: AnswerForm) -> Iterator[Item]:
    response, gold = RESPONSES[form]
    return ((form, response(n), gold) for n in count())


def loop_rate(items: Iterator[Item], grader: Grader, *, seconds: float) -> float:
    """Answers a second in this process, after one that warms it up."""
    verify(*next(items), grader)
    started = time.monotonic()
    for num in count(1):
        verify(*next(items), grader)
        elapsed = time.monotonic() - started
        if elapsed > seconds:
            return num / elapsed
    raise AssertionError("count() never ends")


def pool_rate(verifier: Verifier, items: Iterator[Item], grader: Grader, *, num: int) -> float:
    """Answers a second through the pool, after a batch that starts it."""
    verifier.verify_batch(list(islice(items, 16)), grader=grader)
    batch = list(islice(items, num))
    started = time.monotonic()
    verdicts = verifier.verify_batch(batch, grader=grader)
    elapsed = time.monotonic() - started
    if "failed" in verdicts:
        raise SystemExit("error: the verifier failed on some answers; the figures are void")
    return num / elapsed


if __name__ == "__main__":
    main(read_arguments(Arguments, about=__doc__))
