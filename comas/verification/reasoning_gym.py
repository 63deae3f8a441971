"""reasoning_gym's tasks: ``score_answer`` of the task judges, in the sandbox, what is boxed."""

import ast
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from comas.verification.boxed import last_boxed
from comas.verification.coding import process_sandbox
from comas.verification.forms import Verdict
from comas.verification.sandbox import Limits, SandboxError

LIMITS = Limits(cpu_s=5)
SCORER = Path(__file__).with_name("reasoning_gym_scorer.py")
_TEXT = re.compile(r"\\(?:text|texttt|textbf|mathrm|mathbf)\{(.*)\}", re.DOTALL)
_PROGRAM = """\
from reasoning_gym_scorer import is_right
VERDICT = is_right({task!r}, {options!r}, {entry!r}, {answer!r})
"""


@dataclass(frozen=True)
class Gold:
    """A gold answer: all that a task needs to judge one."""

    task: str
    options: dict[str, Any]
    entry: str
    """The question as the generator made it, with its answer and what else the task keeps of it, as
    a Python literal: JSON has no tuples, and keys that are texts alone."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Raises ValueError where ``text`` is not what ``write`` made."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the gold answer is none that data.train=reasoning_gym makes: {error}"
            ) from error

    @property
    def own_answer(self) -> str | None:
        """The task's; None: it has none, and judges by rules alone."""
        return ast.literal_eval(self.entry)["answer"]

    def write(self) -> str:
        """As JSON."""
        return json.dumps(vars(self))


def verify_reasoning_gym(response: str, gold: str) -> Verdict:
    r"""Judge whether reasoning_gym gives the last ``\boxed{}`` of ``response`` the whole point.

    An answer over the limits of the sandbox, or which the task's code cannot read, is wrong.

    Raises ValueError when ``gold`` is not a ``Gold``, SandboxError when the sandbox cannot run, as
    where reasoning_gym is not installed.
    """
    known = Gold.read(gold)
    answer = last_boxed(response)
    if answer is None:
        return "unanswered"
    if wrapped := _TEXT.fullmatch(answer):
        answer = wrapped[1].strip()
    return "correct" if _is_right(known, answer) else "wrong"


def try_tasks(golds: Iterable[str]) -> str:
    """Have the first question of every task judged on the task's own answer; returns the tasks.
    Raises ValueError where one is not right, or the sandbox cannot run."""
    first: dict[str, Gold] = {}
    for gold in map(Gold.read, golds):
        first.setdefault(gold.task, gold)
    try:
        wrong = [
            task
            for task, gold in first.items()
            if (answer := gold.own_answer) is not None and not _is_right(gold, answer)
        ]
    except SandboxError as error:
        raise ValueError(f"reasoning_gym does not run in the sandbox: {error}") from error
    if wrong:
        raise ValueError(
            f"data.reasoning_gym.tasks: {', '.join(wrong)} judge their own answers wrong here; "
            "leave them out, or give them other options"
        )
    return ", ".join(first)


def _is_right(gold: Gold, answer: str) -> bool:
    program = _PROGRAM.format(**vars(gold), answer=answer)
    sandbox = process_sandbox(LIMITS, preload=SCORER)
    return sandbox.run(program, checker="assert VERDICT is True")
