"""The strict science verifier: which number a box holds, and whether it is close enough."""

import pytest
from tables import pairs, texts

from comas.verification.science import read_number, verify_science


@pytest.mark.parametrize(("value", "text"), pairs("science", "numbers"))
def test_a_number_is_read_in_every_usual_notation(value, text):
    assert read_number(text) == (pytest.approx(float(value), rel=1e-12),)


@pytest.mark.parametrize("text", texts("science", "read both ways"))
def test_a_percent_sign_is_read_both_ways(text):
    assert read_number(text) == (6.25, pytest.approx(0.0625))


@pytest.mark.parametrize("text", [*texts("science", "no single number"), ""])
def test_what_holds_no_single_number_is_not_read(text):
    assert read_number(text) == ()
    assert verify_science(rf"\boxed{{{text}}}", "2.5") == "unanswered"


@pytest.mark.parametrize(("gold", "answer"), pairs("science", "within five percent"))
def test_a_number_within_five_percent_is_correct(gold, answer):
    assert verify_science(rf"Hence \boxed{{{answer}}}", f" {gold} ") == "correct"


@pytest.mark.parametrize(("gold", "answer"), pairs("science", "further off"))
def test_a_number_further_off_is_wrong(gold, answer):
    assert verify_science(rf"\boxed{{{answer}}}", gold) == "wrong"


@pytest.mark.parametrize("joint", [" or ", ", ", r"\text{ or }"])
def test_boxes_joined_to_one_answer_hold_several_numbers(joint):
    assert verify_science(rf"\boxed{{1}}{joint}\boxed{{2.5}}", "2.5") == "unanswered"
    assert verify_science(rf"\boxed{{2.5}}{joint}\boxed{{2.5}}", "2.5") == "correct"


@pytest.mark.parametrize("gold", ["swift", "", "1e999", "nan", r"\frac{1}{2}"])
def test_a_science_gold_that_is_no_number_is_an_error(gold):
    with pytest.raises(ValueError, match=r"gold answer .* is not a number"):
        verify_science(r"\boxed{1}", gold)
