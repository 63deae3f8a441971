"""Strict graders on spellings.jsonl: every spelling of an equal answer, and none of a near-miss.

One answer of each kind that a generator knew, whose author had not read the graders (to be found
under the tag v0.15.0); the graders are not to be fitted to them.
"""

import json
from pathlib import Path

import pytest
from tables import cases

from comas.verification.verifiers import verify

LINES = (Path(__file__).parent / "spellings.jsonl").read_text(encoding="utf-8").splitlines()


@cases("lines", LINES[::4], pytest.param(LINES, marks=pytest.mark.stack), ids=["a fourth", "all"])
def test_equal_answers_are_accepted_and_near_misses_are_not(lines):
    told = [json.loads(line) for line in lines]
    verdicts = [verify(case["form"], case["response"], case["gold"]) for case in told]
    judged = zip(told, verdicts, strict=True)
    assert [case for case, v in judged if (v == "correct") != case["is_right"]] == []
