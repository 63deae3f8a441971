"""Finding the answer of a response: the last box, or the last boxes that make a list."""

import time

from tables import cases, pairs

from comas.verification.boxed import last_boxed, last_boxed_list

NONE = [r"\boxed{}", r"\boxed{\boxed{}}", r"\boxed{ ", "the answer is 8"]


@cases("answer, response", *pairs("boxes", "last"), *((None, text) for text in NONE))
def test_the_last_balanced_box_is_the_answer(answer, response):
    assert last_boxed(response) == answer


@cases("answer, response", *pairs("boxes", "list"), *((None, text) for text in NONE))
def test_boxes_joined_by_a_connective_are_one_list(answer, response):
    assert last_boxed_list(response) == answer


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
