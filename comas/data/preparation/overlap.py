"""Finds questions that repeat others: the same words, or a long run of the same words.

Two questions overlap when they share 13 words in a row, the measure that Brown et al. (2020,
"Language Models are Few-Shot Learners", appendix C) introduced and that is usual since. A
shorter question overlaps when all its words, 8 at least, stand in the other in a row. Before
that, case, punctuation, LaTeX's markup and drawings (Asymptote code) are taken out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

NUM_WORDS = 13
MIN_WORDS = 8

_DRAWING = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Overlap:
    """A repetition of another question."""

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
        # The words of a text between blanks, so that a run of whole words is a part of it.
        self._id_of_text: dict[str, str] = {}
        self._id_of_run: dict[str, str] = {}

    def add(self, question_id: str, text: str) -> None:
        words = words_of(text)
        self._id_of_text.setdefault(_between_blanks(words), question_id)
        for run in _runs(words, NUM_WORDS):
            self._id_of_run.setdefault(run, question_id)

    def find(self, text: str) -> Overlap | None:
        """A question of the index that ``text`` repeats, or None."""
        if same := self.find_same(text):
            return same
        words = words_of(text)
        if len(words) >= NUM_WORDS:
            for run in _runs(words, NUM_WORDS):
                if run in self._id_of_run:
                    return Overlap(self._id_of_run[run], run, is_same=False)
        elif len(words) >= MIN_WORDS:
            run = _between_blanks(words)
            for other, question_id in self._id_of_text.items():
                if run in other:
                    return Overlap(question_id, run.strip(), is_same=False)
        return None

    def find_same(self, text: str) -> Overlap | None:
        """A question of the index with exactly the words of ``text``, or None."""
        run = _between_blanks(words_of(text))
        if run not in self._id_of_text:
            return None
        return Overlap(self._id_of_text[run], run.strip(), is_same=True)


def words_of(text: str) -> list[str]:
    r"""The words and numbers of a text, in lower case.

    Example: ``words_of(r"Find $\frac{1}{2}+x$.") == ["find", "frac", "1", "2", "x"]``
    """
    return _WORD.findall(_DRAWING.sub(" ", text).casefold())


def _between_blanks(words: list[str]) -> str:
    return f" {' '.join(words)} "


def _runs(words: list[str], length: int) -> Iterator[str]:
    for start in range(len(words) - length + 1):
        yield " ".join(words[start : start + length])
