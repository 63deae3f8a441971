"""Forms of answers, graders and verdicts."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic_core import to_jsonable_python

Grader = Literal["strict", "published", "math_verify"]
"""strict: without known faults. published: as the published results were graded, faults included.
math_verify: math by math-verify on the whole response, as most of the field does; all else as
strict."""

Verdict = Literal["correct", "wrong", "unanswered", "failed"]
"""unanswered: the response holds no answer in the requested form. failed: the verifier itself
failed or ran out of time, which says nothing about the answer; it is counted and reported, never
taken for wrong."""

_COLUMNS = "\x1e"
"""Separates a gold answer from the columns of its question."""


def join_columns(gold: str, columns: Mapping[str, Any]) -> str:
    """Append a question's columns to its gold answer, for verifiers that read them."""
    return f"{gold}{_COLUMNS}{json.dumps(in_json(columns))}"


def parted(gold: str) -> tuple[str, dict[str, Any]]:
    """Split a result of ``join_columns`` into gold answer and columns."""
    gold, _, columns = gold.partition(_COLUMNS)
    return gold, json.loads(columns) if columns else {}


def in_json(columns: Mapping[str, Any]) -> Any:
    """Return columns as JSON values; dates, pictures and the like become text."""
    return to_jsonable_python(columns, bytes_mode="base64", inf_nan_mode="null", fallback=str)
