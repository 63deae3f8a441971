"""When a run would have been stopped by a rule that sees no answers, and what that was worth."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from comas.run.metrics.instruments import reliability
from comas.run.records import Row
from comas.run.stopping import parse_condition
from comas.utils.files import read_lines
from comas.verification.latex import compared_as

STOP_RULE = "instruments/reliability < 0.05 over 40"
"""An entry of ``training.stop_when``, found on tuning seeds."""
DROP = 5.0
"""Points of greedy accuracy below its peak that count as a collapse, or that stopping may cost."""


class Stop(NamedTuple):
    """What stopping a run did, in percent of greedy accuracy."""

    step: int
    accuracy: float
    """At the last validation before it."""
    best_later: float
    at_end: float

    @property
    def is_false_alarm(self) -> bool:
        """Whether more was still to come."""
        return self.best_later > self.accuracy + DROP


def stopping_step(run: Path, rows: Sequence[Row]) -> int | None:
    """The first step after which ``STOP_RULE`` holds, of the run in the folder ``run``.

    Runs of versions without the instrument have it computed from their discussions.
    """
    condition = parse_condition(STOP_RULE)
    known = [row for row in rows if row["step"] > 0]
    if len(known) < condition.num_values:
        return None
    if condition.metric not in known[0]:
        known = [
            {"step": row["step"], condition.metric: _reliability(run, row["step"])} for row in known
        ]
    for count in range(condition.num_values, len(known) + 1):
        if condition.holds(known[:count]):
            return int(known[count - 1]["step"])
    return None


def collapse_step(course: Iterable[tuple[int, float]]) -> int | None:
    """The first validation from which on accuracy (percent) stays more than ``DROP`` below its
    peak; None: it does not. After the collapse step of arXiv 2603.08660; the formula is ours.

    Example: 20, 80, 74, 81, 70, 75 at the steps 0, 20, ... 100: 80.
    """
    values = sorted(course)
    peak = max(accuracy for _, accuracy in values)
    found = None
    for step, accuracy in reversed(values):
        if accuracy >= peak - DROP:
            break
        found = step
    return found


def what_stopping_did(step: int, course: Iterable[tuple[int, float]]) -> Stop:
    """Of a run that the rule stops after ``step``; ``course`` is accuracy (percent) by step."""
    values = sorted(course)
    accuracy = [value for at, value in values if at <= step][-1]
    later = [value for at, value in values if at > step]
    return Stop(step, accuracy, max(later, default=accuracy), values[-1][1])


def _reliability(run: Path, step: int) -> float | None:
    answers: dict[str, list[tuple[str, float]]] = {}
    file = run / "discussions" / f"step_{step:04}.jsonl"
    for record in read_lines(file, json.loads, remedy="Leave the run out"):
        for turn in record["turns"]:
            if turn["role"] == "solution" and None not in (turn["agent"], turn["reward"]):
                answer = (compared_as(turn["response"]), turn["reward"])
                answers.setdefault(record["question_id"], []).append(answer)
    return reliability(answers)
