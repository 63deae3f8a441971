r"""Words in answers, with or without ``\text``: introductions, words that change an answer, domains
of its letters, answers in words, and names of values."""

import re
from typing import NamedTuple

from comas.verification.latex import VOCABULARY, trim

_NUMBERS = VOCABULARY["numbers"].split()
_TENS = VOCABULARY["tens"].split()
_NUMBER_OF = {word: number for number, word in enumerate(_NUMBERS)} | {
    f"{tens} {one}" if one != "zero" else tens: 10 * number + digit
    for number, tens in enumerate(_TENS, start=2)
    for digit, one in enumerate(_NUMBERS[:10])
}
ALTERING = frozenset([*_NUMBERS, *_TENS, *VOCABULARY["altering"].split()])
"""Words that change the number beside them or that they name, as "pairs" or "at least"."""

_LEAD = r"(?:and|so|thus|hence|therefore|then|finally|consequently|clearly|in (?:total|conclusion))"
_VERB = r"(?:is|are|was|equals?|becomes?|(?:will|would|must|should) be|comes to)"
_EXACTLY = r"(?: (?:simply|just|exactly|equal to|given by|the same as|found to be))?"
_ANSWER = (
    r"(?:(?:the|our|my|your|an?) )?(?:(?:final|correct|right|exact|only|required|desired|simplified"
    r"|numerical|resulting|overall) )*(?:answer|result|solution|ans|value|option|choice)"
    r"(?: (?:here|set|in simplest form|to the (?:question|problem)))?"
)
_FOUND = r"(?:(?:we|i|you|one)(?: can| must)? )?(?:get|have|obtain|find|conclude|see)(?: that)?"
_INTRODUCTION = re.compile(
    rf"(?:{_LEAD}[ ,:]+)*"
    rf"(?:{_LEAD}|{_FOUND}|{_ANSWER}|(?P<subject>[a-z][a-z' -]*?)(?= ?:| {_VERB}\b))?"
    rf" ?(?:{_VERB}{_EXACTLY})? ?[:=,]*",
)
_SIGNS_BEFORE = re.compile(r"^(?:\\(?:therefore|implies|because|so)(?![a-zA-Z])|[=:]| |\*\*)+")
_SIGNS_BEHIND = re.compile(r"(?: |\*\*|\\(?:blacksquare|square|checkmark)(?![a-zA-Z]))+$")
_WORDS_BEFORE = re.compile(
    r"\\text ?\{(?P<text>[^{}]*)\} ?(?P<sign>[:=]?)"
    r"|(?P<bare>[A-Za-z]+[':]?(?:[ ,]+[A-Za-z]+[':]?)*)(?= ?[-+\d\\$(\[{:=]| [A-Za-z]$)"
)
_OPTION = re.compile(
    r"^(?:\\text ?\{ ?(?:\([A-J]\)|[A-J][).:]) ?\}(?=.)"
    r"|\([A-J]\) (?=[-+\d\\])|[A-J]\) ?(?=[-+\d\\(]))"
)
_ANSWER_IS = re.compile(rf"^(?:{_LEAD}[ ,]+)*{_ANSWER} ?(?:{_VERB}|:) ", re.IGNORECASE)

_SETS = {"integer": "Z", "natural number": "N", "real number": "R", "whole number": "N"}
_KIND = rf"({'|'.join(_SETS)})s?"
_DOMAIN = re.compile(
    r"(?:[,;:|(]|\s|\\(?:quad|forall|mid)(?![a-zA-Z])|\b(?:for|where|with|all|any|every|each|some)\b)*"
    r"(?:(?<![\\a-zA-Z])(?P<letter>[a-z])\s*(?:\\in|(?:is )?in)\s*\\mathbb\{(?P<set>[NZQR])\}"
    r"(?P<sign>(?:[\^_]?\{?[+*-]\}?)*)"
    rf"|\b(?P<named>[a-z])\s+(?:is|are|being)?\s*(?:an?|any)?\s*(?P<kind>{_KIND})"
    rf"|(?P<of>{_KIND})\s*(?P<last>[a-z]))[\s)]*$"
)
_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_ANSWER_IN_WORDS = re.compile(r"[^\W\d_](?:[^\W\d_]|[ '.,/()&-])*")
# Formulas do not have so many letters in a row, and have spaces around signs.
_BARE = re.compile(r"(?=.*[^\W\d_]{4})[^\W\d_]+(?:[-' ]{1,2}[^\W\d_]+)*")
_SHORT = {"yes", "no", "odd"}
_WORDS_AMONG = re.compile(r"(?<!_)(?<!_[ {])\\text ?\{[^{}]*[^\W\d_]{2}")
_PRODUCT_SIGN = re.compile(r"\\(?:cdot|times)(?![a-zA-Z])|[ *]")
_POINTS = re.compile(r"(?<![\\a-zA-Z])(?!USD)[A-Z]{3,}(?![a-z])")
_NAME = re.compile(r"[A-Z]{2,}|[A-Z][a-z]{2}")
_HYPHEN_OR_COMMA = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])|,(?!\d)")
_ARTICLE = re.compile(r"^(?:the|an?) (?=\w)")


class Domain(NamedTuple):
    r"""A letter and its set: ``k \in \mathbb{Z}``."""

    letter: str
    of: str


def strip_phrases(text: str) -> str:
    r"""Remove introductions and end marks from ``text`` (normalized LaTeX), but no words that
    change the answer (``ALTERING``): ``r"\therefore \text{ The answer is: } 25"`` gives ``"25"``.
    """
    before = None
    while text != before:
        before = text
        text = _SIGNS_BEHIND.sub("", _SIGNS_BEFORE.sub("", text))
        text = _without_introduction(trim(_OPTION.sub("", text)))
    return text


def is_plain(words: str) -> bool:
    """Return True if ``words`` only name or describe a number, without changing it."""
    return ALTERING.isdisjoint(re.findall(r"[^\W\d_]+", words.casefold().replace("'", "")))


def split_domain(text: str) -> tuple[str, Domain | None]:
    r"""Split ``k \in \mathbb{Z}`` from the end of ``text``, if k occurs before it: ``r"k\pi, k \in
    \mathbb{Z}"`` gives ``r"k\pi"`` and ``Domain("k", "Z")``."""
    plain = _TEXT.sub(r" \1 ", text)
    if (clause := _DOMAIN.search(plain)) is None:
        return text, None
    body = plain[: clause.start()].strip(" ,;")
    letter = clause["letter"] or clause["named"] or clause["last"]
    kind = clause["set"] or _SETS[(clause["kind"] or clause["of"]).removesuffix("s")]
    if not re.search(rf"(?<![\\a-zA-Z]){letter}(?![a-zA-Z])|(?<=\d){letter}", body):
        return text, None
    return body, Domain(letter, kind + re.sub(r"[{}^_]", "", clause["sign"] or ""))


def is_text(gold: str) -> bool:
    """Return True if ``gold`` (normalized) consists of words; a number in words is a number."""
    words = _words_in_text(gold)
    if words is not None:
        return _in_digits(words) is None
    return gold.casefold() in _SHORT or any(p.fullmatch(gold) for p in (_BARE, _NAME))


def is_equal_text(gold: str, answer: str) -> bool:
    r"""Return True if words agree, ignoring case, or letters without ``\text`` as a product."""
    words, given = _words_in_text(gold), _words_in_text(answer)
    if words or given or gold.casefold() in _SHORT or has_words(gold):
        return _plain(gold) == _plain(answer)
    if _BARE.fullmatch(answer):
        # The first letter may have another case, as at the start of a sentence.
        return answer in (gold, gold[0].swapcase() + gold[1:])
    letters = _PRODUCT_SIGN.sub("", answer)
    if gold.isupper():
        return letters == gold.replace(" ", "")
    return sorted(gold.replace(" ", "")) == sorted(letters)


def has_other_points(gold: str, answer: str) -> bool:
    """Return True if the two name different points or orders, as the angles ABC and ACB."""
    points, given = (_POINTS.findall(_TEXT.sub(" ", text)) for text in (gold, answer))
    return sorted(points) != sorted(given)


def has_words(value: str) -> bool:
    r"""Return True if a value without a unit contains words, as ``\text{June } 20``."""
    return bool(_WORDS_AMONG.search(value))


def unwrapped_number(text: str) -> str:
    """Write a number in words as digits; unwrap text that is all in ``\\text``."""
    wrapped = _TEXT.fullmatch(text)
    inner = wrapped[1].strip() if wrapped else text
    return _in_digits(inner) or inner


def _without_introduction(text: str) -> str:
    words = _WORDS_BEFORE.match(text)
    if words is None or words.end() == len(text):
        return text
    phrase = (words["text"] or words["bare"] or "").replace("~", " ").strip().casefold()
    phrase += words["sign"] or ""
    introduction = _INTRODUCTION.fullmatch(phrase)
    if introduction is None or not is_plain(introduction["subject"] or ""):
        return text
    return text[words.end() :].strip()


def _words_in_text(text: str) -> str | None:
    r"""Return the content of ``\text``, if it is the whole ``text`` and holds only words."""
    wrapped = _TEXT.fullmatch(text)
    if wrapped is None or not _ANSWER_IN_WORDS.fullmatch(words := wrapped[1].strip(" .()*`'\"")):
        return None
    return words


def _in_digits(words: str) -> str | None:
    number = _NUMBER_OF.get(" ".join(words.casefold().replace("-", " ").split()))
    return None if number is None else str(number)


def _plain(words: str) -> str:
    """Return one spelling for words that differ only in case, hyphens, stops or an article."""
    words = _TEXT.sub(r" \1 ", words).strip(" .()*`'\"").strip()
    words = _HYPHEN_OR_COMMA.sub(" ", _ANSWER_IS.sub("", words).casefold())
    words = _ARTICLE.sub("", " ".join(words.split()))
    return VOCABULARY["abbreviations"].get(words, words)


_SUBSCRIPT = re.compile(r"_(?:\{[^{}]*\}|\w)")
# An unknown, f(x), words, or a tuple of unknowns.
_SIMPLE_NAME = re.compile(
    r"(?:\\text ?\{(?P<words>[^{}]*)\}|(?P<plain>[a-zA-Z]+(?: [a-zA-Z]+)*)'*|\\[a-zA-Z]+)"
    r"(?:_(?:\{[^{}]*\}|\w))?(?: ?\([a-zA-Z, ]*\))?|\([a-zA-Z\\_0-9, ]*\)"
)
_CONSTANTS = {r"\pi", "e", "i", r"\infty", r"\emptyset", r"\tau", r"\phi"}
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_WORDS_IN_NAME = re.compile(r"\\(?:text|operatorname) ?\{([^{}]*)\}")
_GREEK = re.compile(
    r"\\(?:alpha|beta|gamma|delta|epsilon|theta|lambda|mu|nu|rho|sigma|tau|phi|varphi|omega|Delta)"
    r"(?![a-zA-Z])"
)
_MULTIPLE = re.compile(r"[-+\d.]|\\frac ?\{-?\d")
# Functions whose value may be asked for, such as f(2), P(A), |z|, \sin x or \angle A.
_APPLIED = re.compile(
    r"(?:\\?[a-zA-Z]+(?:'+|_(?:\{[^{}]*\}|\w)|\^\{-1\})*|\\(?:text|operatorname) ?\{[^{}]*\})"
    r" ?\(.*\)"
    r"|\|(?![a-vxy]\|).*\||\\(?:sin|cos|tan|cot|sec|csc|angle|triangle|overline|vec|deg|det|min|max|lim)"
    r"(?![a-zA-Z]).*",
    re.DOTALL,
)
_OF_A_MATRIX = re.compile(r"(?<=[A-Z])\^ ?(?:\{ ?(?:-1|T) ?\}|T)")
_ARITHMETIC = re.compile(r"[-+/^*\d!|]|\\(?:frac|sqrt|cdot|times|log|ln|exp)(?![a-zA-Z])")


def is_name(text: str) -> bool:
    """Return True if ``text`` is an unknown that may be given a value."""
    name = _SIMPLE_NAME.fullmatch(text)
    if name is None or text in _CONSTANTS:
        return False
    return is_plain(name["words"] or name["plain"] or "")


def is_asked_for(text: str) -> bool:
    r"""Return True if a question may ask for the value of ``text``: ``f(2)``, ``x^2 + y^2``. A
    multiple or a power of one unknown is not: ``2x = 5`` and ``x^2 = 5`` are equations for x."""
    if is_name(text):
        return True
    if _MULTIPLE.match(text) or not is_plain(_COMMAND.sub(" ", text)):
        return False
    bare = _OF_A_MATRIX.sub("", _SUBSCRIPT.sub("", _WORDS_IN_NAME.sub(" X Y ", text)))
    letters = {*re.findall(r"[a-zA-Z]", _COMMAND.sub(" ", bare)), *_GREEK.findall(bare)}
    letters -= {"e", "i"}
    if _APPLIED.fullmatch(text):
        return bool(letters) or "(" in text
    return len(letters) > 1 or (len(letters) == 1 and not _ARITHMETIC.search(bare))


def is_same_name(gold: str, answer: str) -> bool:
    """Return True if two names agree; x_1 and x_2 agree with x."""
    answer = answer if "_" in gold else _SUBSCRIPT.sub("", answer)
    return _plain_name(gold) == _plain_name(answer)


def _plain_name(name: str) -> str:
    words = _WORDS_IN_NAME.fullmatch(name)
    return re.sub(r"[ {}]", "", words[1].strip().casefold() if words else name)
