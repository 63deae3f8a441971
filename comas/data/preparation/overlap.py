"""Finds questions that repeat others: the same words, or a long run of the same words.

Two questions overlap when they share 13 words in a row, the measure that Brown et al. (2020,
"Language Models are Few-Shot Learners", appendix C) introduced and that is usual since. A
shorter question overlaps when all its words, 8 at least, stand in the other in a row. Before
that, case, punctuation, LaTeX's markup and drawings (Asymptote code) are taken out.
"""

import re
from collections.abc import Iterator

NUM_WORDS = 13
MIN_WORDS = 8

_DRAWING = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")


class OverlapIndex:
    """Questions, and whether another one repeats any of them."""

    def __init__(self) -> None:
        # The words of a text between blanks, so that a run of whole words is a part of it.
        self._texts: set[str] = set()
        self._runs: set[str] = set()

    def add(self, *texts: str) -> None:
        for words in map(words_of, texts):
            self._texts.add(_between_blanks(words))
            self._runs.update(_runs(words))

    def has_same(self, text: str) -> bool:
        """True if a question has exactly the words of ``text``."""
        return _between_blanks(words_of(text)) in self._texts

    def overlaps(self, text: str) -> bool:
        """True if ``text`` repeats a question, or a part of one."""
        words = words_of(text)
        if len(words) >= NUM_WORDS:
            return not self._runs.isdisjoint(_runs(words))
        whole = _between_blanks(words)
        is_part = len(words) >= MIN_WORDS and any(whole in other for other in self._texts)
        return is_part or whole in self._texts


def words_of(text: str) -> list[str]:
    r"""The words and numbers of a text, in lower case.

    Example: ``words_of(r"Find $\frac{1}{2}+x$.") == ["find", "frac", "1", "2", "x"]``
    """
    return _WORD.findall(_DRAWING.sub(" ", text).casefold())


def _between_blanks(words: list[str]) -> str:
    return f" {' '.join(words)} "


def _runs(words: list[str]) -> Iterator[str]:
    for start in range(len(words) - NUM_WORDS + 1):
        yield " ".join(words[start : start + NUM_WORDS])
