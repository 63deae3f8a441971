"""Which verifier judges which form of answer. A new one is one file and one line here."""

from collections.abc import Callable

from comas.verification.choice import verify_choice
from comas.verification.coding import verify_coding, verify_coding_published
from comas.verification.forms import AnswerForm, Grader
from comas.verification.math import verify_math
from comas.verification.published import (
    verify_choice_published,
    verify_math_published,
    verify_science_published,
)
from comas.verification.science import verify_science
from comas.verification.verdict import Verdict

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

TIMEOUT_S: dict[Grader, dict[AnswerForm, float]] = {
    "strict": {"math": 10.0, "science": 10.0, "coding": 60.0, "choice": 10.0},
    # math-verify's own limits, 5 s a step, belong to the published grader: the outer one must
    # leave them room, as it must for the 3 s of each program.
    "published": {"math": 30.0, "science": 10.0, "coding": 120.0, "choice": 10.0},
}
"""Seconds for one item, from outside: over them, the verifier has failed."""


def verify(form: AnswerForm, response: str, gold: str, grader: Grader = "strict") -> Verdict:
    """Judge one response in this process, without an outer time limit.

    Raises ValueError when the gold is not of its form: a formula, a number, a letter or checker
    code that can be read.
    """
    return GRADERS[grader][form](response, gold)
