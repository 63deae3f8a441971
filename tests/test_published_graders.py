"""The published graders keep their faults; beside each, what the strict grader says."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tables import cases, pairs, parts, texts

from comas.verification.published import verify_math_by_library
from comas.verification.verifiers import verify


def verdicts(form: str, response: str, gold: str) -> tuple[str, str]:
    """(published, strict)"""
    return verify(form, response, gold, "published"), verify(form, response, gold)


@pytest.mark.parametrize("gold", texts("published", "math: the gold itself is wrong"))
def test_published_math_rejects_the_gold_itself_and_strict_does_not(gold):
    assert verdicts("math", rf"So it is $\boxed{{{gold}}}$.", gold) == ("wrong", "correct")


@pytest.mark.parametrize(("gold", "answer"), pairs("published", "math: a part of the gold"))
def test_published_math_accepts_a_part_of_the_gold_and_strict_does_not(gold, answer):
    assert verdicts("math", rf"\boxed{{{answer}}}", gold) == ("correct", "wrong")


@cases("gold, response, published, strict", *parts("published", "math: plain numbers"))
def test_published_math_agrees_on_plain_numbers_and_needs_no_box(gold, response, published, strict):
    assert verdicts("math", response, gold) == (published, strict)


@cases("gold, response, verdict", *parts("published", "math: by the library"))
def test_math_verify_reads_whole_responses_and_the_whole_gold(gold, response, verdict):
    assert verify_math_by_library(response, gold) == verdict


def test_a_gold_that_cannot_be_read_is_an_error():
    with pytest.raises(ValueError, match="math-verify cannot read the gold answer ''"):
        verify("math", r"\boxed{1}", "", "math_verify")
    with pytest.raises(ValueError, match="could not convert"):
        verify("science", r"\boxed{1}", "swift", "published")


def test_published_math_off_the_main_thread_is_an_error_and_not_wrong():
    with ThreadPoolExecutor() as other, pytest.raises(ValueError, match="threaded environment"):
        other.submit(verify, "math", r"\boxed{71}", "71", "published").result()


@pytest.mark.parametrize("answer", ["(A)", r"\text{A}", "A.", " A ", "A) Right, Left", "a"])
def test_published_choice_rejects_a_letter_with_anything_around_it(answer):
    assert verdicts("choice", rf"\boxed{{{answer}}}", "A") == ("unanswered", "correct")


@cases("response, verdict", *parts("published", "choice: bare letters"))
def test_published_choice_takes_the_last_bare_letter_up_to_d(response, verdict):
    assert verify("choice", response, "A", "published") == verdict


@cases(
    "gold, answer, verdict", *parts("published", "science: digits"), (" -200", "-190.0", "correct")
)
def test_published_science_reads_plain_digits_only_and_strict_reads_all(gold, answer, verdict):
    assert verdicts("science", rf"\boxed{{{answer}}}", gold) == (verdict, "correct")


def test_published_science_allows_five_percent_and_needs_a_box():
    assert verify("science", r"\boxed{210.1}", "200", "published") == "wrong"
    assert verify("science", "210", "200", "published") == "unanswered"
