"""Tasks of reasoning_gym: their ``score_answer`` judges the boxed answer in the sandbox."""

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from comas.verification.boxed import last_boxed
from comas.verification.coding import process_sandbox
from comas.verification.forms import Verdict
from comas.verification.sandbox import Limits

LIMITS = Limits(cpu_s=5)
SCORER = Path(__file__).with_name("reasoning_gym_scorer.py")
_TEXT = re.compile(r"\\(?:text|texttt|textbf|mathrm|mathbf)\{(.*)\}", re.DOTALL)
_PROGRAM = """\
from reasoning_gym_scorer import is_right
VERDICT = is_right({task!r}, {options!r}, {entry!r}, {answer!r})
"""


@dataclass(frozen=True)
class Gold:
    """A gold answer: everything that a task needs to judge one."""

    task: str
    options: dict[str, Any]
    entry: str
    """The generated question with its answer and metadata, as a Python literal, since JSON has no
    tuples and only text keys."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Read JSON of ``write``; raises ValueError for anything else."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the gold answer was not made by data.train=reasoning_gym: {error}"
            ) from error

    @property
    def own_answer(self) -> str | None:
        """The task's answer; None if the task judges only by rules."""
        return ast.literal_eval(self.entry)["answer"]

    def write(self) -> str:
        return json.dumps(vars(self))


def verify_reasoning_gym(response: str, gold: str) -> Verdict:
    r"""Judge whether reasoning_gym gives the last ``\boxed{}`` of ``response`` full marks.

    An answer that exceeds the sandbox's limits, or that the task's code cannot read, is wrong.

    Raises ValueError if ``gold`` is not a ``Gold``, SandboxError if the sandbox cannot run, as
    without reasoning_gym.
    """
    known = Gold.read(gold)
    answer = last_boxed(response)
    if answer is None:
        return "unanswered"
    if wrapped := _TEXT.fullmatch(answer):
        answer = wrapped[1].strip()
    program = _PROGRAM.format(**vars(known), answer=answer)
    passed = process_sandbox(LIMITS, preload=SCORER).run(program, checker="assert VERDICT is True")
    return "correct" if passed else "wrong"
