"""The strict multiple-choice verifier: every way to write one letter, and no guess at another."""

import pytest
from tables import texts

from comas.verification.choice import read_letter, verify_choice

B = [*texts("choice", "B"), " B ", "\uff22", "\u24b7", "\U0001d401"]
NOT_ONE_LETTER = texts("choice", "not one letter")


@pytest.mark.parametrize("answer", B)
def test_a_letter_is_read_however_it_is_boxed(answer):
    assert read_letter(answer) == "B"
    assert verify_choice(rf"So it is \boxed{{{answer}}}.", "B") == "correct"
    assert verify_choice(rf"\boxed{{{answer}}}", "C") == "wrong"


@pytest.mark.parametrize("answer", NOT_ONE_LETTER)
def test_a_box_that_names_no_letter_or_several_is_unanswered_whatever_the_options(answer):
    assert read_letter(answer) is None
    for gold in ("B", "B\n(A) cat\n(B) hen\n(C) cow"):
        assert verify_choice(rf"\boxed{{{answer}}}", gold) == "unanswered"


OPTIONS = {
    "A": "dog",
    "B": "Not wrong, Wrong",
    "C": "A dog",
    "D": "To or from (A) only",
    "E": "(i)",
    "F": "C",
    "G": r"$\frac{1}{2}$",
    "H": "but\nnot A or B",
    "I": "-5",
    "J": "ADP",
}
LISTED = "\n".join(f"({letter}) {text}" for letter, text in OPTIONS.items())
WITH_OPTION = [
    *("{0}. {1}", "({0}) {1}", "{0}) {1}.", "{0}: {1}", "{0}, {1}", "{0} - {1}", "{0} ({1})"),
    *("{0} {1}", r"{0}\ \text{{{1}}}", r"\textbf{{({0})}} {1}", "Option {0}: {1}"),
    "The answer is ({0}) {1}",
]


@pytest.mark.parametrize("template", WITH_OPTION)
def test_a_letter_may_be_followed_by_any_text_that_is_its_options(template):
    for letter, text in OPTIONS.items():
        answer = rf"So it is \boxed{{{template.format(letter, text)}}}."
        assert verify_choice(answer, f"{letter}\n{LISTED}") == "correct"
        assert verify_choice(answer, f"Z\n{LISTED}") == "wrong"


@pytest.mark.parametrize("template", WITH_OPTION)
def test_a_letter_with_another_options_text_names_two(template):
    for letter, other in zip("ABCDE", "JIHGB", strict=True):
        answer = rf"\boxed{{{template.format(letter, OPTIONS[other])}}}"
        for gold in (letter, other):
            assert verify_choice(answer, f"{gold}\n{LISTED}") == "unanswered"


@pytest.mark.parametrize("empty", ["{}", "()", "[]", "", "' '", "*"])
def test_an_option_of_signs_alone_is_not_named_by_every_letter(empty):
    listed = f"(A) {empty}\n(B) [1]\n(C) None"
    for letter in "ABC":
        for answer in (letter, f"({letter})", rf"\text{{{letter}}}"):
            assert verify_choice(rf"\boxed{{{answer}}}", f"{letter}\n{listed}") == "correct"


@pytest.mark.parametrize("response", ["It is B.", r"\boxed{}", r"\boxed{B"])
def test_a_letter_without_a_box_is_unanswered(response):
    assert verify_choice(response, "B") == "unanswered"


def test_of_several_boxes_the_last_counts():
    assert verify_choice(r"Not \boxed{C} but \boxed{z}", " Z ") == "correct"
    assert verify_choice(r"Not \boxed{B} but \boxed{B or C}", "B") == "unanswered"


@pytest.mark.parametrize("joint", [" or ", ", ", r"\text{ or }", " and ", "/"])
def test_boxes_joined_to_one_answer_name_several_letters(joint):
    assert verify_choice(rf"\boxed{{A}}{joint}\boxed{{B}}", "B") == "unanswered"
    assert verify_choice(rf"\boxed{{B}}{joint}\boxed{{B}}", "B") == "correct"


@pytest.mark.parametrize("gold", ["", "AB", "(A)", "a", "1"])
def test_a_choice_gold_that_is_no_letter_is_an_error(gold):
    with pytest.raises(ValueError, match="is not a letter from A to Z"):
        verify_choice(r"\boxed{A}", gold)
