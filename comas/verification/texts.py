r"""Answers in words, with ``\text`` or without."""

import re

from comas.verification.phrases import number_in_words, without_answer_is

_WRAPPED = re.compile(r"\\text ?\{([^{}]*)\}")
_WORDS = re.compile(r"[^\W\d_](?:[^\W\d_]|[ '.,/()&-])*")
# A formula has no letters in a row that many, and has spaces around its signs.
_BARE = re.compile(r"(?=.*[^\W\d_]{4})[^\W\d_]+(?:[-' ]{1,2}[^\W\d_]+)*")
_SHORT = {"yes", "no", "odd"}
_WORDS_AMONG = re.compile(r"(?<!_)(?<!_[ {])\\text ?\{[^{}]*[^\W\d_]{2}")
_PRODUCT_SIGN = re.compile(r"\\(?:cdot|times)(?![a-zA-Z])|[ *]")
_POINTS = re.compile(r"(?<![\\a-zA-Z])[A-Z]{3,}(?![a-z])")
_NAME = re.compile(r"[A-Z]{2,}|[A-Z][a-z]{2}")
_HYPHEN_OR_COMMA = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])|,(?!\d)")
_ARTICLE = re.compile(r"^(?:the|an?) (?=\w)")


def is_text(gold: str) -> bool:
    """Whether ``gold`` (normalized) is words and no formula; a number in words is a number."""
    words = _words(gold)
    if words is not None:
        return number_in_words(words) is None
    return gold.casefold() in _SHORT or any(p.fullmatch(gold) for p in (_BARE, _NAME))


def is_equal_text(gold: str, answer: str) -> bool:
    """Whether words agree up to their case, or letters without ``\\text`` as a product of them."""
    words, given = _words(gold), _words(answer)
    if words or given or gold.casefold() in _SHORT or has_words(gold):
        return _plain(gold) == _plain(answer)
    if _BARE.fullmatch(answer):
        return gold[0].swapcase() + gold[1:] == answer  # as at the start of a sentence
    letters = _PRODUCT_SIGN.sub("", answer)
    if gold.isupper():
        return letters == gold.replace(" ", "")
    return sorted(gold.replace(" ", "")) == sorted(letters)


def has_other_points(gold: str, answer: str) -> bool:
    """Whether the two name points in another order, as the angles ABC and ACB."""
    points, given = (_POINTS.findall(_WRAPPED.sub(" ", text)) for text in (gold, answer))
    return sorted(points) != sorted(given)


def has_words(value: str) -> bool:
    r"""Whether words stand in a value that has no unit, as in ``\text{June } 20``."""
    return bool(_WORDS_AMONG.search(value))


def unwrapped_number(text: str) -> str:
    """A number in words as digits, and what stands in ``\\text`` alone as it is."""
    inner = _unwrapped(text)
    return number_in_words(inner) or inner


def _words(text: str) -> str | None:
    r"""What stands in ``\text``, if it is words."""
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is None or not _WORDS.fullmatch(words := wrapped[1].strip(" .()*`'\"")):
        return None
    return words


def _unwrapped(text: str) -> str:
    wrapped = _WRAPPED.fullmatch(text)
    return wrapped[1].strip() if wrapped else text


def _plain(words: str) -> str:
    """One spelling for words that differ in case, hyphens, stops and an article alone."""
    words = _WRAPPED.sub(r" \1 ", words)
    words = without_answer_is(words.strip(" .()*`'\"")).casefold()
    words = _HYPHEN_OR_COMMA.sub(" ", words)
    return _ARTICLE.sub("", " ".join(words.split()))
