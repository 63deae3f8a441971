"""Which verifier judges which form of answer. A new one is one file and one line here."""

from collections.abc import Callable

from comas.verification.choice import verify_choice
from comas.verification.coding import verify_coding, verify_coding_published
from comas.verification.forms import AnswerForm, Grader, Verdict
from comas.verification.math import verify_math
from comas.verification.published import (
    verify_choice_published,
    verify_math_published,
    verify_science_published,
)
from comas.verification.science import verify_science

GRADERS: dict[Grader, dict[AnswerForm, Callable[[str, str], Verdict]]] = {
    "strict": {
        "math": verify_math,
        "science": verify_science,
        "coding": verify_coding,
        "choice": verify_choice,
    },
    "published": {
        "math": verify_math_published,
        "science": verify_science_published,
        "coding": verify_coding_published,
        "choice": verify_choice_published,
    },
}
"""grader -> form -> (response, gold) -> verdict."""

CPU_LIMIT_S: dict[Grader, float] = {
    "strict": 10.0,
    # math-verify's own limits, 5 s a step, belong to the published grader: this must leave them
    # room.
    "published": 30.0,
}
"""CPU seconds of the verifier for one item: over them, it has failed. A program that it runs has
limits of its own."""


def verify(form: AnswerForm, response: str, gold: str, grader: Grader = "strict") -> Verdict:
    """Judge one response in this process, without a limit.

    Raises ValueError when the gold is not of its form: a formula, a number, a letter or checker
    code that can be read.
    """
    return GRADERS[grader][form](response, gold)
