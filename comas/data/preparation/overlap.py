"""Finds questions that repeat others: the same words, or a long run of the same words.

Two questions overlap when they share 13 words in a row, the measure that Brown et al. (2020,
"Language Models are Few-Shot Learners", appendix C) introduced and that is usual since. A
shorter question overlaps when all its words, 8 at least, stand in the other in a row. Before
that, case, punctuation, LaTeX's markup and drawings (Asymptote code) are taken out.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

NUM_WORDS = 13
MIN_WORDS = 8

_DRAWING = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Overlap:
    """What a question repeats."""

    other_id: str
    words: str
    """The run of words that both have; all of them if they are the same."""
    is_same: bool


class OverlapIndex:
    """Questions, and which of them another one repeats.

    Example: with "How many legs do 12 dogs and 3 cats have in all?" added under "x",
    ``find("how many legs do 12 dogs and 3 cats have, in all")`` gives
    ``Overlap("x", "how many legs do 12 dogs and 3 cats have in all", is_same=True)``.
    """

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._id_of_text: dict[str, str] = {}
        self._id_of_run: dict[str, str] = {}
        # All texts, each framed by newlines: to find the runs of short questions in.
        self._texts: list[str] = []
        self._all_texts: str | None = None
        self._starts: list[int] = []

    def add(self, question_id: str, text: str) -> None:
        words = words_of(text)
        joined = " ".join(words)
        self._ids.append(question_id)
        self._texts.append(f"\n {joined} \n")
        self._all_texts = None
        self._id_of_text.setdefault(joined, question_id)
        for run in _runs(words, NUM_WORDS):
            self._id_of_run.setdefault(run, question_id)

    def find(self, text: str) -> Overlap | None:
        """A question of the index that ``text`` repeats, or None."""
        words = words_of(text)
        if same := self._same_as(words):
            return same
        if len(words) >= NUM_WORDS:
            for run in _runs(words, NUM_WORDS):
                if run in self._id_of_run:
                    return Overlap(self._id_of_run[run], run, is_same=False)
        elif len(words) >= MIN_WORDS:
            return self._containing(" ".join(words))
        return None

    def find_same(self, text: str) -> Overlap | None:
        """A question of the index with exactly the words of ``text``, or None."""
        return self._same_as(words_of(text))

    def _same_as(self, words: list[str]) -> Overlap | None:
        joined = " ".join(words)
        if joined not in self._id_of_text:
            return None
        return Overlap(self._id_of_text[joined], joined, is_same=True)

    def _containing(self, joined: str) -> Overlap | None:
        if self._all_texts is None:
            self._all_texts = "".join(self._texts)
            self._starts = [0]
            for text in self._texts[:-1]:
                self._starts.append(self._starts[-1] + len(text))
        place = self._all_texts.find(f" {joined} ")
        if place < 0:
            return None
        return Overlap(self._ids[bisect_right(self._starts, place) - 1], joined, is_same=False)


def words_of(text: str) -> list[str]:
    r"""The words and numbers of a text, in lower case.

    Example: ``words_of(r"Find $\frac{1}{2}+x$.") == ["find", "frac", "1", "2", "x"]``
    """
    return _WORD.findall(_DRAWING.sub(" ", text).casefold())


def _runs(words: list[str], length: int) -> Iterator[str]:
    for start in range(len(words) - length + 1):
        yield " ".join(words[start : start + length])
