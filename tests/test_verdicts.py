"""The verifiers: which answers are the same; the published graders and their faults; any text."""

import contextlib
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tables import case_file, cases, pairs, parts, texts

from comas.verification import Verifier
from comas.verification.boxed import last_boxed, last_boxed_list
from comas.verification.choice import read_letter, verify_choice
from comas.verification.coding import examine_checker, last_python_block
from comas.verification.latex import normalize
from comas.verification.math import MAX_ANSWER_CHARS, verify_math
from comas.verification.published import (
    verify_choice_published,
    verify_math_by_library,
    verify_science_published,
)
from comas.verification.science import read_number, verify_science
from comas.verification.units import read_quantity
from comas.verification.verifiers import verify

NONE = [r"\boxed{}", r"\boxed{\boxed{}}", r"\boxed{ ", "the answer is 8"]


@cases(
    "read, answer, response",
    *((last_boxed, *pair) for pair in pairs("boxes", "last")),
    *((last_boxed_list, *pair) for pair in pairs("boxes", "list")),
    *((read, None, text) for text in NONE for read in (last_boxed, last_boxed_list)),
)
def test_the_last_balanced_box_is_the_answer_or_joined_ones_a_list(read, answer, response):
    assert read(response) == answer


@cases(
    "response",
    *(r"\boxed{" * 30_000, r"\boxed 1{" * 30_000, r"\boxed " * 30_000),
    *(r"\boxed{1}, " * 15_000, "{" * 60_000, "}" * 60_000),
)
def test_a_box_is_found_in_linear_time(response):
    started = time.process_time()
    last_boxed(response)
    last_boxed_list(response)
    assert time.process_time() - started < 2


def some_and_all(names: str, rows: Sequence[Any], *, every: int) -> Any:
    """Parametrise with some of ``rows`` in the quick tier, and with all of them in the others."""
    parts = rows[::every], pytest.param(rows, marks=pytest.mark.stack)
    return pytest.mark.parametrize(names, parts, ids=["some", "all"])


SAME_OR_ANOTHER = [
    *((*pair, "correct") for pair in [*pairs("math", "same"), ("25", "25\\ ")]),
    *((*pair, "wrong") for pair in pairs("math", "another")),
    *((gold, gold, "correct") for gold in texts("math", "same")),
]


@some_and_all("rows", SAME_OR_ANOTHER, every=3)
def test_the_same_answer_in_another_form_is_correct_and_another_answer_wrong(rows):
    judged = [(*row, verify_math(rf"So it is \boxed{{{row[1]}}}.", row[0])) for row in rows]
    assert [row for row in judged if row[2] != row[3]] == []
    assert verify_math("I give up.", rows[0][0]) == "unanswered"


@cases("response, verdict")
def test_without_a_box_it_is_unanswered_and_a_box_that_cannot_be_read_is_wrong(response, verdict):
    with ThreadPoolExecutor() as other_thread:  # a caller need not be the main thread
        response = response.replace("LONG", "1+" * MAX_ANSWER_CHARS)
        assert other_thread.submit(verify_math, response, "13").result() == verdict


@pytest.mark.parametrize("gold", [r"\heartsuit \& 13", r"(1, \& 13)", r"2, \& 13"])
def test_a_gold_that_cannot_be_read_is_an_error_unless_it_is_repeated(gold):
    assert verify_math(rf"\boxed{{{gold}}}", gold) == "correct"
    with pytest.raises(ValueError, match=r"gold answer .* cannot be read as math"):
        verify_math("I give up.", gold)
    for empty in ("", " ", ".", ","):
        with pytest.raises(ValueError, match="cannot be read as math"):
            verify_math(r"\boxed{,}", empty)


@cases("answer")
def test_what_is_too_large_to_compute_is_wrong_within_a_second(answer):
    started = time.process_time()
    assert verify_math(rf"\boxed{{{answer}}}", r"[0, \infty)") == "wrong"
    assert verify_math(rf"\boxed{{{answer}}}", r"\frac{2}{7}") == "wrong"
    assert time.process_time() - started < 1


@cases("value, text", *pairs("science", "numbers"))
def test_a_number_is_read_in_every_usual_notation(value, text):
    assert read_number(text) == (pytest.approx(float(value), rel=1e-12),)


@pytest.mark.parametrize("text", texts("science", "read both ways"))
def test_a_percent_sign_is_read_both_ways(text):
    assert read_number(text) == (6.25, pytest.approx(0.0625))


@cases("text", *texts("science", "no single number"), "")
def test_what_holds_no_single_number_is_not_read(text):
    assert read_number(text) == ()
    assert verify_science(rf"\boxed{{{text}}}", "2.5") == "unanswered"


@cases(
    "gold, answer, verdict",
    *((*pair, "correct") for pair in pairs("science", "within five percent")),
    *((*pair, "wrong") for pair in pairs("science", "further off")),
)
def test_a_number_within_five_percent_is_correct(gold, answer, verdict):
    assert verify_science(rf"Hence \boxed{{{answer}}}", f" {gold} ") == verdict


@pytest.mark.parametrize("joint", [" or ", ", ", r"\text{ or }", " and ", "/"])
@cases("verifier, other, gold", (verify_science, "1", "2.5"), (verify_choice, "A", "B"))
def test_boxes_joined_to_one_answer_hold_several(joint, verifier, other, gold):
    assert verifier(rf"\boxed{{{other}}}{joint}\boxed{{{gold}}}", gold) == "unanswered"
    assert verifier(rf"\boxed{{{gold}}}{joint}\boxed{{{gold}}}", gold) == "correct"


@cases("response, verdict")
def test_an_answer_in_two_forms_is_one(response, verdict):
    assert verify_math(response, r"\frac12") == verdict


@cases(
    "verifier, gold, said",
    *((verify_science, gold, "a number") for gold in ("swift", "", "1e999", "nan", r"\frac{1}{2}")),
    *((verify_choice, gold, "a letter from A to Z") for gold in ("", "AB", "(A)", "a", "1")),
)
def test_a_gold_of_another_form_is_an_error(verifier, gold, said):
    with pytest.raises(ValueError, match=f"gold answer .* is not {said}"):
        verifier(r"\boxed{1}", gold)


B = [*texts("choice", "B"), " B ", "\uff22", "\u24b7", "\U0001d401"]
NOT_ONE_LETTER = texts("choice", "not one letter")


@cases("answer", *B)
def test_a_letter_is_read_however_it_is_boxed(answer):
    assert read_letter(answer) == "B"
    assert verify_choice(rf"So it is \boxed{{{answer}}}.", "B") == "correct"
    assert verify_choice(rf"\boxed{{{answer}}}", "C") == "wrong"


@cases("answer", *NOT_ONE_LETTER)
def test_a_box_that_names_no_letter_or_several_is_unanswered_whatever_the_options(answer):
    assert read_letter(answer) is None
    for gold in ("B", "B\n(A) cat\n(B) hen\n(C) cow"):
        assert verify_choice(rf"\boxed{{{answer}}}", gold) == "unanswered"


OPTIONS = case_file("verdicts")["OPTIONS"]
LISTED = "\n".join(f"({letter}) {text}" for letter, text in OPTIONS.items())
WITH_OPTION = [
    *("{0}. {1}", "({0}) {1}", "{0}) {1}.", "{0}: {1}", "{0}, {1}", "{0} - {1}", "{0} ({1})"),
    *("{0} {1}", r"{0}\ \text{{{1}}}", r"\textbf{{({0})}} {1}", "Option {0}: {1}"),
    "The answer is ({0}) {1}",
]


@cases("template", *WITH_OPTION)
def test_a_letter_may_be_followed_by_any_text_that_is_its_options(template):
    for letter, text in OPTIONS.items():
        answer = rf"So it is \boxed{{{template.format(letter, text)}}}."
        assert verify_choice(answer, f"{letter}\n{LISTED}") == "correct"
        assert verify_choice(answer, f"Z\n{LISTED}") == "wrong"


@cases("template", *WITH_OPTION)
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


@cases(
    "response, gold, verdict",
    *((response, "B", "unanswered") for response in ("It is B.", r"\boxed{}", r"\boxed{B")),
    (r"Not \boxed{C} but \boxed{z}", " Z ", "correct"),
    (r"Not \boxed{B} but \boxed{B or C}", "B", "unanswered"),
)
def test_of_several_boxes_the_last_counts_and_a_letter_needs_one(response, gold, verdict):
    assert verify_choice(response, gold) == verdict


def of_both_graders():
    """(form, gold, response, published verdict, strict verdict)"""
    for gold in texts("published", "math: the gold itself is wrong"):
        yield "math", gold, rf"So it is $\boxed{{{gold}}}$.", "wrong", "correct"
    for gold, answer in pairs("published", "math: a part of the gold"):
        yield "math", gold, rf"\boxed{{{answer}}}", "correct", "wrong"
    for case in parts("published", "math: plain numbers"):
        yield "math", *case
    for answer in ("(A)", r"\text{A}", "A.", " A ", "A) Right, Left", "a"):
        yield "choice", "A", rf"\boxed{{{answer}}}", "unanswered", "correct"
    for gold, answer, verdict in parts("published", "science: digits"):
        yield "science", gold, rf"\boxed{{{answer}}}", verdict, "correct"
    yield "science", " -200", r"\boxed{-190.0}", "correct", "correct"
    yield "science", "200", r"\boxed{210.1}", "wrong", "wrong"
    yield "science", "200", "210", "unanswered", "unanswered"


@cases("form, gold, said, published, strict", *of_both_graders())
def test_the_published_graders_have_faults_the_strict_have_not(form, gold, said, published, strict):
    assert verify(form, said, gold, "published") == published
    assert verify(form, said, gold) == strict


@cases("gold, response, verdict", *parts("published", "math: by the library"))
def test_math_verify_reads_whole_responses_and_the_whole_gold(gold, response, verdict):
    assert verify_math_by_library(response, gold) == verdict


def test_a_gold_that_cannot_be_read_or_another_thread_is_an_error():
    with pytest.raises(ValueError, match="math-verify cannot read the gold answer ''"):
        verify("math", r"\boxed{1}", "", "math_verify")
    with pytest.raises(ValueError, match="could not convert"):
        verify("science", r"\boxed{1}", "swift", "published")
    with ThreadPoolExecutor() as other, pytest.raises(ValueError, match="threaded environment"):
        other.submit(verify, "math", r"\boxed{71}", "71", "published").result()


@cases("response, verdict", *parts("published", "choice: bare letters"))
def test_published_choice_takes_the_last_bare_letter_up_to_d(response, verdict):
    assert verify("choice", response, "A", "published") == verdict


LINES = (Path(__file__).parent / "spellings.jsonl").read_text(encoding="utf-8").splitlines()


@some_and_all("lines", LINES, every=8)
def test_equal_answers_are_accepted_and_near_misses_are_not(lines):
    told = [json.loads(line) for line in lines]
    verdicts = [verify(case["form"], case["response"], case["gold"]) for case in told]
    judged = zip(told, verdicts, strict=True)
    assert [case for case, v in judged if (v == "correct") != case["is_right"]] == []


PIECES = case_file("verdicts")["PIECES"]
FRAGMENTS = [
    *PIECES["latex"].split(),
    *PIECES["signs"],
    *("```python\n", "\n```\n", r"\boxed{" * 50, "}" * 50, "(" * 200, "9" * 5000, "1+" * 300),
]
NUM_TEXTS = [1_000, pytest.param(10_000, marks=pytest.mark.slow)]


def random_texts(num: int) -> list[str]:
    """Always the same, so that failures are reproducible."""
    rng = Random(0)

    def piece() -> str:
        kind = rng.randrange(4)
        if kind == 0:
            return "".join(chr(rng.randrange(0x20, 0x3000)) for _ in range(rng.randrange(5)))
        return str(rng.randrange(-(10**6), 10**6)) if kind == 1 else rng.choice(FRAGMENTS)

    return ["".join(piece() for _ in range(rng.randrange(13))) for _ in range(num)]


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("num_texts", NUM_TEXTS)
def test_no_text_breaks_a_parser(num_texts):
    for text in random_texts(num_texts):
        started = time.process_time()
        for response in (text, rf"\boxed{{{text}}}"):
            last_python_block(response)
            verify_choice(response, "B")
            verify_choice_published(response, "B")
            verify_science(response, "2.5")
            verify_science_published(response, "2.5")
        read_quantity(normalize(text[:400]))
        with contextlib.suppress(ValueError):  # documented: the text is no checker
            examine_checker(text)
        assert time.process_time() - started < 5, text


@pytest.mark.stack
@pytest.mark.parametrize("num_texts", NUM_TEXTS)
def test_no_text_breaks_or_holds_up_a_math_verifier(num_texts, caplog):
    golds = cycle(PIECES["golds"])
    items = [("math", rf"\boxed{{{text}}}", next(golds)) for text in random_texts(num_texts)]
    with Verifier(cpu_limit_s=3.0) as verifier:
        verdicts = verifier.verify_batch(items)
    # A few cannot be computed, such as the factorial of a number of ten digits.
    num_failed = verdicts.count("failed")
    assert num_failed <= num_texts * 0.005
    assert caplog.text.count(f"{num_failed} x over the limit of CPU time") == min(num_failed, 1)
    assert verdicts.count("wrong") > num_texts / 2
