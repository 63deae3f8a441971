"""Which verifier judges which form of answer. A new one is one file and one line here."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

from comas.config.plugins import Registry, check_call
from comas.types import ALL_DOMAINS
from comas.verification.choice import verify_choice
from comas.verification.coding import verify_coding, verify_coding_published
from comas.verification.forms import Grader, Verdict, parted
from comas.verification.math import verify_math
from comas.verification.published import (
    verify_choice_published,
    verify_math_by_library,
    verify_math_published,
    verify_science_published,
)
from comas.verification.reasoning_gym import verify_reasoning_gym
from comas.verification.science import verify_science

Verify = Callable[..., Verdict]
"""(response, gold) -> verdict. A function with an argument ``columns`` also gets the question's row
as JSON values, with ``gold`` and ``source``."""


def reads_columns(verifier: Verify) -> bool:
    return "columns" in inspect.signature(verifier).parameters


def _as_verifier(found: Any) -> Verify | None:
    if not callable(found):
        return None
    check_call(found, "response", "gold", named=("columns",) if reads_columns(found) else ())
    return found


VERIFIERS: Registry[Verify] = Registry(
    {
        "math": verify_math,
        "science": verify_science,
        "coding": verify_coding,
        "choice": verify_choice,
        "reasoning": verify_reasoning_gym,
        "math_verify": verify_math_by_library,
    },
    group="comas.verifiers",
    wanted="a function from a response and its gold answer to a Verdict",
    adapt=_as_verifier,
)
"""Verifiers by the names that the keys of ``verification`` give them: strict ones by their forms,
and math_verify."""

GRADERS: dict[Grader, Mapping[str, Verify]] = {
    "strict": VERIFIERS,
    "published": {
        "math": verify_math_published,
        "science": verify_science_published,
        "coding": verify_coding_published,
        "choice": verify_choice_published,
        "reasoning": verify_reasoning_gym,  # there is no published grader
    },
    "math_verify": {
        **{form: VERIFIERS[form] for form in ALL_DOMAINS},
        "math": verify_math_by_library,
    },
}
"""grader -> form -> verifier."""

SANDBOXED: frozenset[str] = frozenset({"coding", "reasoning"})
"""The forms whose verifiers run what a model writes."""

CPU_LIMIT_S: dict[Grader, float] = {"strict": 10.0, "published": 30.0, "math_verify": 30.0}
"""CPU seconds of a verifier for one item; beyond them it has failed. math-verify's own limits of
5 s a step need room within it. Programs have limits of their own."""


def verify(form: str, response: str, gold: str, grader: Grader = "strict") -> Verdict:
    """Judge one response in this process, without a limit; ``form`` may also be the name of a
    strict verifier.

    Raises ValueError if the gold is not of its form (a formula, a number, a letter, or checker
    code), or if the verifier returns no verdict.
    """
    verifier = GRADERS[grader][form]
    gold, columns = parted(gold)
    named = {"columns": columns} if reads_columns(verifier) else {}
    verdict = verifier(response, gold, **named)
    if verdict not in get_args(Verdict):
        known = ", ".join(get_args(Verdict))
        raise ValueError(f"the verifier {form} says {verdict!r}; let it say one of {known}")
    return verdict
