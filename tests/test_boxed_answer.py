"""Finding the answer of a response: the last box, or the last boxes that make a list."""

from __future__ import annotations

import time

import pytest

from comas.verification.boxed import last_boxed, last_boxed_list


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"first \boxed{1}, then \boxed{ 2 }.", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\left\{ 1, 2 \right.}", r"\left\{ 1, 2 \right."),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{1 + \boxed{3}}", "3"),
        (r"\boxed{4} and, cut off, \boxed{\frac{5", "4"),
        (r"a stray } and { before \boxed{6}", "6"),
        (r"\boxed {7}", "7"),
        (r"\boxed{8} or \boxed{9}", "9"),
        (r"so \fbox{3}", "3"),
        (r"\boxed{\fbox{C}}", "C"),
        (r"$\boxed 73$", "73"),
        (r"so \boxed 73, which is $n$", "73"),
        (r"\(\boxed -\frac{\sqrt{2}}{2}\)", r"-\frac{\sqrt{2}}{2}"),
        (r"\boxed\frac{1}{2}", r"\frac{1}{2}"),
        (r"\boxed C.", "C"),
        (r"\boxed{5}, in \boxed as asked, a \boxed a day", "5"),
        (r"\boxed{5} \boxed\{6\}", "5"),
        (r"\boxed{1} then \boxed{ }", "1"),
        (r"\boxed{1}. It is in `\boxed{}`, as asked.", "1"),
        (r"\boxed{1}. It is in \boxed{...} and \boxed{\ldots\,}.", "1"),
        (r"\boxed{1}. No: \boxed{?}", "?"),
        (r"\boxed{}", None),
        (r"\boxed{\boxed{}}", None),
        (r"I \boxed it and \boxed I", "I"),
        (r"\boxed{ ", None),
        ("the answer is 8", None),
    ],
)
def test_the_last_balanced_box_is_the_answer(response, answer):
    assert last_boxed(response) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"\boxed{2}, \boxed{5}", "2, 5"),
        (r"\boxed{2} or \boxed{5}", "2 or 5"),
        (r"$\boxed{2}$ and $\boxed{5}$", "2, 5"),
        (r"\(\boxed{1}\), \(\boxed{2}\), and \(\boxed{3}\).", "1, 2, 3"),
        (r"\[\boxed{2} \quad \text{or} \quad \boxed{5}\]", "2 or 5"),
        (r"\boxed{5}, \boxed{5}", "5"),
        (r"\boxed{2} or maybe \boxed{5}", "2 or 5"),
        (r"**$\boxed{2}$** and/or **$\boxed{5}$**", "2 or 5"),
        (r"\boxed{2} / \boxed{5}", "2 or 5"),
        (r"\boxed{2} (or, if you like, \boxed{5})", "2 or 5"),
        (r"\boxed{2} for short. Or \boxed{5}", "5"),
        (r"\boxed{2}. No: \boxed{5}", "5"),
        (r"\boxed{2} \boxed{5}", "5"),
        (r"\boxed{2}, not 3, or \boxed{5}", "5"),
        (r"\boxed{5}", "5"),
        (r"\boxed{5}, \boxed{}", "5"),
        (r"$\boxed 2$ or $\boxed 5$", "2 or 5"),
        (r"\boxed{}", None),
        ("none", None),
    ],
)
def test_boxes_joined_by_a_connective_are_one_list(response, answer):
    assert last_boxed_list(response) == answer


@pytest.mark.parametrize(
    "response",
    [
        r"\boxed{" * 30_000,
        r"\boxed 1{" * 30_000,
        r"\boxed " * 30_000,
        r"\boxed{1}, " * 15_000,
        "{" * 60_000,
        "}" * 60_000,
    ],
)
def test_a_box_is_found_in_linear_time(response):
    started = time.process_time()
    last_boxed(response)
    last_boxed_list(response)
    assert time.process_time() - started < 2
