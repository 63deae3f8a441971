"""Strict graders: every spelling of an equal answer, and none of a near-miss."""

from __future__ import annotations

import pytest
from spellings import cases

from comas.verification import Verifier
from comas.verification.verifiers import verify

NUM_QUICK = 150
NUM = 5_000
MIN_ACCEPTED = 0.999


@pytest.mark.parametrize("is_right", [True, False])
def test_equal_answers_are_accepted_and_near_misses_are_not(is_right):
    drawn = cases(NUM_QUICK, seed=1, is_right=is_right)
    assert [case for case in drawn if (verify(*case.item) == "correct") != is_right] == []


@pytest.mark.slow
def test_of_thousands_of_equal_answers_hardly_one_is_refused_and_no_near_miss_is_accepted():
    drawn = [case for right in (True, False) for case in cases(NUM, seed=2, is_right=right)]
    with Verifier() as verifier:
        verdicts = verifier.verify_batch([case.item for case in drawn])
    accepted = [c for c, verdict in zip(drawn, verdicts, strict=True) if verdict == "correct"]
    assert [case for case in accepted if not case.is_right] == []
    assert sum(case.is_right for case in accepted) >= MIN_ACCEPTED * NUM
