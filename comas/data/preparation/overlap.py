"""Finds questions that repeat others: the same words, or a long run of the same words.

Two questions overlap if they share 13 words in a row, the usual measure of Brown et al. (2020,
"Language Models are Few-Shot Learners", appendix C). A shorter question overlaps if all its words,
at least 8, occur in a row in the other. Case, punctuation, LaTeX markup and drawings (Asymptote
code) are ignored.
"""

import re
from collections.abc import Iterator

NUM_WORDS = 13
MIN_WORDS = 8

_DRAWING = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")


class OverlapIndex:
    """An index of questions that tells if another one repeats any of them."""

    def __init__(self) -> None:
        # Words between blanks, so that a substring test finds whole words.
        self._texts: set[str] = set()
        self._short: set[str] = set()
        self._runs: set[str] = set()

    def add(self, *texts: str) -> None:
        for words in map(words_of, texts):
            self._texts.add(_between_blanks(words))
            self._runs.update(_runs(words))
            if MIN_WORDS <= len(words) < NUM_WORDS:
                self._short.add(_between_blanks(words))

    def has_same(self, text: str) -> bool:
        """Return True if an indexed question has exactly the words of ``text``."""
        return _between_blanks(words_of(text)) in self._texts

    def overlaps(self, text: str) -> bool:
        """Return True if ``text`` repeats an indexed question, or a part of one."""
        words = words_of(text)
        whole = _between_blanks(words)
        if len(words) >= NUM_WORDS:
            has_part = any(short in whole for short in self._short)
            return has_part or not self._runs.isdisjoint(_runs(words))
        is_part = len(words) >= MIN_WORDS and any(whole in other for other in self._texts)
        return is_part or whole in self._texts


def words_of(text: str) -> list[str]:
    r"""Return the words and numbers of a text, in lower case: ``words_of(r"Find $\frac{1}{2}+x$.")
    == ["find", "frac", "1", "2", "x"]``"""
    return _WORD.findall(_DRAWING.sub(" ", text).casefold())


def _between_blanks(words: list[str]) -> str:
    return f" {' '.join(words)} "


def _runs(words: list[str]) -> Iterator[str]:
    for start in range(len(words) - NUM_WORDS + 1):
        yield " ".join(words[start : start + NUM_WORDS])
