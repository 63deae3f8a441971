"""The published graders keep their faults; beside each, what the strict grader says."""

from __future__ import annotations

import threading

import pytest

from comas.verification.choice import verify_choice
from comas.verification.math import verify_math
from comas.verification.published import (
    verify_choice_published,
    verify_math_by_library,
    verify_math_published,
    verify_science_published,
)
from comas.verification.science import verify_science


@pytest.mark.parametrize(
    "gold",
    [
        r"7\sqrt{3}",
        r"45 \pi",
        r"\begin{pmatrix} 4 \\ -9 \\ 2 \end{pmatrix}",
        r"\left[ \frac{2}{7}, 3 \right)",
        "(5, -8)",
        "4x^2 - 9",
        "6 - 7i",
        r"\text{north}",
        r"21 \frac{3}{4}",
        r"2 \pm \sqrt{5}",
        "11, 4, 19",
        r"\frac 29",
        r"\$31.40",
    ],
)
def test_published_math_rejects_the_gold_itself_and_strict_does_not(gold):
    response = rf"So it is $\boxed{{{gold}}}$."
    assert verify_math_published(response, gold) == "wrong"
    assert verify_math(response, gold) == "correct"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"45 \pi", "45"),
        (r"7\sqrt{3}", "7"),
        (r"\frac 29", "29"),
        (r"\begin{pmatrix} 4 \\ -9 \\ -2 \end{pmatrix}", "-2"),
    ],
)
def test_published_math_accepts_a_part_of_the_gold_and_strict_does_not(gold, answer):
    assert verify_math_published(rf"\boxed{{{answer}}}", gold) == "correct"
    assert verify_math(rf"\boxed{{{answer}}}", gold) == "wrong"


@pytest.mark.parametrize(
    ("gold", "response", "verdict"),
    [
        (r"\frac12", r"The final answer is $\frac{1}{2}$.", "correct"),
        ("42", "**Answer: 42**", "correct"),
        (r"7\sqrt{3}", r"So $\boxed{7\sqrt{3}}$.", "correct"),
        (r"45 \pi", r"\boxed{45}", "wrong"),
        (r"\frac 29", r"\boxed{29}", "wrong"),
        ("42", "It is 43.", "wrong"),
        ("42", "I do not know.", "unanswered"),
    ],
)
def test_math_verify_reads_whole_responses_and_the_whole_gold(gold, response, verdict):
    assert verify_math_by_library(response, gold) == verdict


def test_a_gold_that_math_verify_cannot_read_is_an_error():
    with pytest.raises(ValueError, match="math-verify cannot read the gold answer ''"):
        verify_math_by_library(r"\boxed{1}", "")


def test_published_math_agrees_on_plain_numbers():
    assert verify_math_published(r"\boxed{71}", "71") == "correct"
    assert verify_math_published(r"\boxed{72}", "71") == "wrong"
    assert verify_math_published(r"\boxed{\frac{6}{8}}", r"\frac{3}{4}") == "correct"


def test_published_math_needs_no_box_and_strict_does():
    assert verify_math_published("It is 71.", "71") == "correct"
    assert verify_math("It is 71.", "71") == "unanswered"
    assert verify_math_published("I do not know.", "71") == "unanswered"


def test_published_math_off_the_main_thread_is_an_error_and_not_wrong():
    errors = []

    def judge():
        try:
            verify_math_published(r"\boxed{71}", "71")
        except ValueError as error:
            errors.append(str(error))

    thread = threading.Thread(target=judge)
    thread.start()
    thread.join()
    assert len(errors) == 1 and "threaded environment" in errors[0]


@pytest.mark.parametrize("answer", ["(A)", r"\text{A}", "A.", " A ", "A) Right, Left", "a"])
def test_published_choice_rejects_a_letter_with_anything_around_it(answer):
    assert verify_choice_published(rf"\boxed{{{answer}}}", "A") == "unanswered"
    assert verify_choice(rf"\boxed{{{answer}}}", "A") == "correct"


def test_published_choice_takes_the_last_bare_letter_up_to_d():
    assert verify_choice_published(r"\boxed{A}", "A") == "correct"
    assert verify_choice_published(r"\boxed{A}, no: \boxed{B}", "A") == "wrong"
    assert verify_choice_published(r"\boxed{A}, no: \boxed{(B)}", "A") == "correct"
    assert verify_choice_published(r"\boxed{E}", "E") == "unanswered"


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        ("2.5", "x = 2.5", "unanswered"),
        ("2.5", r"2.5\%", "unanswered"),
        ("0.000032", "3.2e-5", "unanswered"),
        ("2.5", r"2.5 \text{ m}", "unanswered"),
        ("89034.79", "89,034.79", "wrong"),
        ("0", "-1e-9", "unanswered"),
        ("0", "0.0000001", "wrong"),
        ("2.5", r"2.5}, in \boxed{", "unanswered"),
        ("2.5", r"\fbox{2.5}", "unanswered"),
    ],
)
def test_published_science_reads_plain_digits_only_and_strict_reads_all(gold, answer, verdict):
    assert verify_science_published(rf"\boxed{{{answer}}}", gold) == verdict
    assert verify_science(rf"\boxed{{{answer}}}", gold) == "correct"


def test_published_science_allows_five_percent():
    assert verify_science_published(r"\boxed{210}", "200") == "correct"
    assert verify_science_published(r"\boxed{-190.0}", " -200") == "correct"
    assert verify_science_published(r"\boxed{210.1}", "200") == "wrong"
    assert verify_science_published(r"\boxed{0.0}", "0") == "correct"
    assert verify_science_published("210", "200") == "unanswered"


def test_a_published_science_gold_that_is_no_number_is_an_error():
    with pytest.raises(ValueError, match="could not convert"):
        verify_science_published(r"\boxed{1}", "swift")
