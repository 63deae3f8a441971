"""The forms of answers, the graders that judge them, and what these may say."""

import json
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic_core import to_jsonable_python

AnswerForm = Literal["math", "science", "coding", "choice", "reasoning"]
"""Forms that questions ask for: an expression or a decimal number in a box, a program, a letter, or
whatever a task of reasoning_gym says."""

ANSWER_FORMS: tuple[AnswerForm, ...] = get_args(AnswerForm)

Grader = Literal["strict", "published", "math_verify"]
"""strict: right, as far as we know. published: as the published results were graded, with all
the faults of those graders, to compare with them. math_verify: math by math-verify on the whole
response, as most of the field grades it; all else as strict."""

Verdict = Literal["correct", "wrong", "unanswered", "failed"]
"""correct and wrong: the answer was judged. unanswered: the response holds no answer in the
form that was asked for. failed: the verifier itself failed or ran out of time, which says
nothing about the answer; it is counted and reported, never taken for wrong."""

_COLUMNS = "\x1e"
"""Ends a gold answer that is followed by the columns of its question."""


def join_columns(gold: str, columns: Mapping[str, Any]) -> str:
    """Return a gold answer together with its question's columns, for verifiers that read them."""
    return f"{gold}{_COLUMNS}{json.dumps(in_json(columns))}"


def parted(gold: str) -> tuple[str, dict[str, Any]]:
    """Return a gold answer, and the columns that it came with."""
    gold, _, columns = gold.partition(_COLUMNS)
    return gold, json.loads(columns) if columns else {}


def in_json(columns: Mapping[str, Any]) -> Any:
    """Return columns as JSON can hold them: what it cannot (dates, pictures) as their text."""
    return to_jsonable_python(columns, bytes_mode="base64", inf_nan_mode="null", fallback=str)
