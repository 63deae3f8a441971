"""Questions that repeat another: the same words, 13 in a row, or all of a short one."""

import pytest

from comas.data.preparation.overlap import OverlapIndex, words_of

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
WORDS = LONG.split()


def index_of(*texts: str) -> OverlapIndex:
    index = OverlapIndex()
    for text in texts:
        index.add(text)
    return index


def test_words_ignore_case_marks_and_drawings():
    words = words_of(r"Find $\frac{1}{2}+x_1$ [asy]draw(A--B);[/asy]!")
    assert words == ["find", "frac", "1", "2", "x", "1"]


def test_the_same_words_overlap_however_short():
    assert index_of("Find x!").has_same("find  X")
    assert index_of("Find x!").overlaps("find  X")
    assert not index_of("Find x!").overlaps("find x now")


@pytest.mark.parametrize(("shared", "overlaps"), [(12, False), (13, True)])
def test_thirteen_words_in_a_row_overlap_and_twelve_do_not(shared, overlaps):
    words = WORDS[:shared]
    index = index_of("apples", f"Before: {' '.join(words)}, after")
    other = f"quite another start, {' '.join(words).upper()} and another end of the question"
    assert index.overlaps(other) == overlaps
    assert not index.has_same(other)


@pytest.mark.parametrize(("length", "overlaps"), [(7, False), (8, True), (12, True)])
def test_a_short_question_overlaps_when_all_of_it_stands_in_another(length, overlaps):
    index = index_of("apples", f"Say: {LONG}", "pears")
    assert index.overlaps(" ".join(WORDS[1 : 1 + length])) == overlaps


def test_a_short_question_is_not_found_across_two_others():
    assert not index_of("a b c d e", "f g h i j").overlaps("c d e f g h i j")
