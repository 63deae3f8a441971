r"""Names of values, such as "x", "f(3)" and "Area": what is one, and which are the same."""

import re

from comas.verification.words import is_plain

_SUBSCRIPT = re.compile(r"_(?:\{[^{}]*\}|\w)")
# An unknown, f(x), words, or a tuple of unknowns.
_SIMPLE = re.compile(
    r"(?:\\text ?\{(?P<words>[^{}]*)\}|(?P<plain>[a-zA-Z]+(?: [a-zA-Z]+)*)'*|\\[a-zA-Z]+)"
    r"(?:_(?:\{[^{}]*\}|\w))?(?: ?\([a-zA-Z, ]*\))?|\([a-zA-Z\\_0-9, ]*\)"
)
_CONSTANTS = {r"\pi", "e", "i", r"\infty", r"\emptyset", r"\tau", r"\phi"}
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_WORDS = re.compile(r"\\(?:text|operatorname) ?\{([^{}]*)\}")
_GREEK = re.compile(
    r"\\(?:alpha|beta|gamma|delta|epsilon|theta|lambda|mu|nu|rho|sigma|tau|phi|varphi|omega|Delta)"
    r"(?![a-zA-Z])"
)
_MULTIPLE = re.compile(r"[-+\d.]|\\frac ?\{-?\d")
# Functions of which the value is asked for, as of f(2), P(A), |z|, \sin x or \angle A.
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
    """Whether ``text`` stands for an unknown that may be given a value."""
    name = _SIMPLE.fullmatch(text)
    if name is None or text in _CONSTANTS:
        return False
    return is_plain(name["words"] or name["plain"] or "")


def is_asked_for(text: str) -> bool:
    r"""Whether ``text`` may be what a question asks the value of: ``f(2)``, ``x^2 + y^2``.

    A multiple or a power of one unknown, as in ``2x = 5`` or ``x^2 = 5``, is an equation for it.
    """
    if is_name(text):
        return True
    if _MULTIPLE.match(text) or not is_plain(_COMMAND.sub(" ", text)):
        return False
    bare = _OF_A_MATRIX.sub("", _SUBSCRIPT.sub("", _WORDS.sub(" X Y ", text)))
    letters = {*re.findall(r"[a-zA-Z]", _COMMAND.sub(" ", bare)), *_GREEK.findall(bare)}
    letters -= {"e", "i"}
    if _APPLIED.fullmatch(text):
        return bool(letters) or "(" in text
    return len(letters) > 1 or (len(letters) == 1 and not _ARITHMETIC.search(bare))


def is_same_name(gold: str, answer: str) -> bool:
    """Whether two names agree; x_1 and x_2 are values of x."""
    answer = answer if "_" in gold else _SUBSCRIPT.sub("", answer)
    return _plain(gold) == _plain(answer)


def _plain(name: str) -> str:
    words = _WORDS.fullmatch(name)
    return re.sub(r"[ {}]", "", words[1].strip().casefold() if words else name)
