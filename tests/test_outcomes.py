"""What an interval over seeds settles, by hand."""

from __future__ import annotations

import pytest

from comas.reproduction.outcomes import Interval, above, all_of, detectable, equivalent, interval


def test_an_interval_is_students_over_seeds():
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, -0.48414, 4.48414), abs=1e-4)
    assert str(interval([1.0, 2.0, 3.0])) == "+2.0 [-0.5, +4.5]"


def test_one_seed_settles_nothing():
    assert above(interval([50.0])) == "undecided"
    assert equivalent(interval([0.0]), margin=3) == "undecided"


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (Interval(2, 0.1, 4), "reproduced"),
        (Interval(2, 0.0, 4), "undecided"),
        (Interval(2, -1, 5), "undecided"),
        (Interval(-2, -4, -0.1), "contradicted"),
    ],
)
def test_a_difference_is_above_zero_when_all_of_its_interval_is(found, outcome):
    assert above(found) == outcome


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (Interval(1, -2.9, 2.9), "reproduced"),
        (Interval(1, -1, 3), "undecided"),
        (Interval(0, -9, 9), "undecided"),
        (Interval(5, 3.1, 7), "contradicted"),
        (Interval(-5, -7, -3.1), "contradicted"),
        (Interval(2.5, 1, 4), "undecided"),
    ],
)
def test_no_difference_is_an_interval_within_the_margin(found, outcome):
    assert equivalent(found, margin=3) == outcome


def test_a_claim_of_several_parts_falls_with_one_of_them():
    assert all_of(["reproduced", "reproduced"]) == "reproduced"
    assert all_of(["reproduced", "undecided"]) == "undecided"
    assert all_of(["undecided", "contradicted", "reproduced"]) == "contradicted"


def test_more_seeds_detect_smaller_differences():
    assert detectable(5.0, 5) == pytest.approx((2.7764 + 0.9410) * 5 / 5**0.5, abs=1e-3)
    assert detectable(5.0, 10) < detectable(5.0, 5)
