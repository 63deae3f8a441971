"""Questions that repeat another: the same words, 13 in a row, or all of a short one."""

from __future__ import annotations

import pytest

from comas.data.preparation.overlap import Overlap, OverlapIndex, words_of

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
WORDS = LONG.split()


def index_of(*texts: str) -> OverlapIndex:
    index = OverlapIndex()
    for number, text in enumerate(texts):
        index.add(f"q{number}", text)
    return index


def test_words_ignore_case_marks_and_drawings():
    words = words_of(r"Find $\frac{1}{2}+x_1$ [asy]draw(A--B);[/asy]!")
    assert words == ["find", "frac", "1", "2", "x", "1"]


def test_the_same_words_overlap_however_short_and_not_across_two_questions():
    assert index_of("Find x!").find("find  X") == Overlap("q0", "find x", is_same=True)
    assert index_of("Find x!").find("find x now") is None
    assert index_of("a b c d e", "f g h i j").find("c d e f g h i j") is None


@pytest.mark.parametrize(("shared", "overlaps"), [(12, False), (13, True)])
def test_thirteen_words_in_a_row_overlap_and_twelve_do_not(shared, overlaps):
    words = " ".join(WORDS[:shared])
    found = index_of("apples", f"Before: {words}, after").find(
        f"quite another start, {words.upper()} and another end of the question"
    )
    assert found == (Overlap("q1", words, is_same=False) if overlaps else None)


@pytest.mark.parametrize(("length", "overlaps"), [(7, False), (8, True), (12, True)])
def test_a_short_question_overlaps_when_all_of_it_stands_in_another(length, overlaps):
    index = index_of("apples", f"Say: {LONG}", "pears")
    asked = " ".join(WORDS[1 : 1 + length])
    for _ in range(2):
        found = index.find(asked)
        assert (found.other_id if found else None) == ("q1" if overlaps else None)
        index.add("q3", "nothing new")
