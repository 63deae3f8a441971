"""The strict math verifier: what is the same answer, and what is not (cases/math.txt)."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tables import cases, pairs, texts

from comas.verification.math import MAX_ANSWER_CHARS, verify_math


@pytest.mark.parametrize(("gold", "answer"), [*pairs("math", "same"), ("25", "25\\ ")])
def test_the_same_answer_in_another_form_is_correct(gold, answer):
    assert verify_math(rf"So it is \boxed{{{answer}}}.", gold) == "correct"


@pytest.mark.parametrize(("gold", "answer"), pairs("math", "another"))
def test_another_answer_is_wrong(gold, answer):
    assert verify_math(rf"\boxed{{{answer}}}", gold) == "wrong"


@pytest.mark.parametrize("gold", texts("math", "same"))
def test_a_gold_can_be_read_and_is_its_own_answer(gold):
    assert verify_math(rf"\boxed{{{gold}}}", gold) == "correct"
    assert verify_math("I give up.", gold) == "unanswered"


@cases(
    "response, verdict",
    *((text, "unanswered") for text in ("It is 13.", r"\boxed{}", r"\boxed{13")),
    *(
        (rf"\boxed{{{text}}}", "wrong")
        for text in ("13 &", r"\frac{13}", "13)", "13 = ", "???", r"\{13", "1.3.1")
    ),
    (r"\boxed{" + "1+" * MAX_ANSWER_CHARS + "1}", "wrong"),
)
def test_without_a_box_it_is_unanswered_and_a_box_that_cannot_be_read_is_wrong(response, verdict):
    with ThreadPoolExecutor() as other_thread:  # as of a verifier's caller
        assert other_thread.submit(verify_math, response, "13").result() == verdict


@pytest.mark.parametrize("gold", [r"\heartsuit \& 13", r"(1, \& 13)", r"2, \& 13"])
def test_a_gold_that_cannot_be_read_is_an_error_unless_it_is_repeated(gold):
    assert verify_math(rf"\boxed{{{gold}}}", gold) == "correct"
    with pytest.raises(ValueError, match=r"gold answer .* cannot be read as math"):
        verify_math("I give up.", gold)
    for empty in ("", " ", ".", ","):
        with pytest.raises(ValueError, match="cannot be read as math"):
            verify_math(r"\boxed{,}", empty)


@cases(
    "answer",
    *("9^{9^{9^9}}", "(10^{10})!", r"\binom{10^9}{10^8}", r"\prod_{n=1}^{10^9} n"),
    *(r"10^{-10^{10^{10}}}", r"\sqrt{2}^{9^{9^9}} + \pi", "x < 9^{9^{9^9}}"),
)
def test_what_is_too_large_to_compute_is_wrong_within_a_second(answer):
    started = time.process_time()
    assert verify_math(rf"\boxed{{{answer}}}", r"[0, \infty)") == "wrong"
    assert verify_math(rf"\boxed{{{answer}}}", r"\frac{2}{7}") == "wrong"
    assert time.process_time() - started < 1
