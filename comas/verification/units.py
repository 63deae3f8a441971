r"""Separates units from numbers and compares them by pint, without converting any."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from tokenize import TokenError

import pint

from comas.verification.latex import VOCABULARY
from comas.verification.words import is_plain

_REGISTRY: pint.UnitRegistry = pint.UnitRegistry()
_REGISTRY.load_definitions(VOCABULARY["unit definitions"])
_OFFSET_UNITS = ("degree_Celsius", "degree_Fahrenheit")

_SCALES = VOCABULARY["scales"]
_MULTIPLIERS = (["k"], ["K"], ["M"], ["B"])
"""Letters for thousand, million or billion, unless a unit is asked for."""
_POWERS = {"sq", "square", "squared", "cubic", "cubed"}
_SHORT_NAMES = {*_SCALES, *_POWERS, *VOCABULARY["units"].split()}
UNIT_LETTERS = frozenset("msghLlNJKWVACT")
"""One-letter units outside ``\\text``, in a ratio or alone after a number."""
_TEXT_LETTERS = UNIT_LETTERS | frozenset("dtFHkMB")
r"""One-letter units in ``\text``, with thousands to billions: all other letters are variables."""

_SIGNS = {"pounds": "\u00a3", "Omega": "\u03a9", "AA": "\u00c5", "mu": "\u00b5", "$": "$"}
_SIGN = r"\\(pounds|Omega|AA|mu)(?![a-zA-Z])|\\(\$)"
_MONEY = r"(?:\\\$|\\pounds|[\u20ac\u00a3\u00a5\u20b9])"
_CURRENCY = re.compile(rf"(?P<sign>[-+]?) ?(?P<symbol>{_MONEY}) ?(?=[-+\d.(\\])")
_POWER = r"\^ ?(?:\{ ?-? ?\d ?\}|-?\d)"
_TEXT = (
    rf"\\text ?\{{(?:[^{{}}\d,\\^]|\\(?:cdot|times|mu|Omega|AA)(?![a-zA-Z])|{_POWER}"
    r"|(?<=[a-zA-Z])-?\d)*\}"
)
# Trap: every text must match in only one way, or a long mismatch takes for ever.
_WORD = r"(?<![^\W\d_])(?<!\\)[^\W\d_]+(?![^\W\d_])"
_UNIT = rf"(?:{_TEXT}|{_WORD}|{_SIGN}|[\u20ac\u00a3\u00a5\u20b9\u00b0])(?: ?{_POWER})?"
_JOINT = r" ?(?:(?:/|\\cdot(?![a-zA-Z])|\\times(?![a-zA-Z])|\*) ?)?"
_PRODUCT = rf"{_UNIT}(?:{_JOINT}(?:{_UNIT}|\({_UNIT}(?:{_JOINT}{_UNIT})*\)))*"
_RATIO = rf"\\frac ?\{{ ?{_PRODUCT} ?\}} ?\{{ ?{_PRODUCT} ?\}}"
_WHOLE = re.compile(rf" ?(?:/ ?(?=\\text))?(?:{_RATIO}|{_PRODUCT}) ?")
_LETTERS_IN_TEXT = re.compile(r"\\text ?\{ ?([a-zA-Z]) ?\}")
_VARIABLES = re.compile(rf" ?(?:{_LETTERS_IN_TEXT.pattern}(?: ?{_POWER})? ?)+")
_END_OF_VALUE = re.compile(r"[\d)}!%](?!\d)|\\pi(?![a-zA-Z])|\w(?= ?\\text)")
_ANGLE_FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")
# A counted thing, not a product of letters.
_PLURAL = re.compile(r"(?=.*[aeiou])[a-z]{3,}s|people|children|women|men|feet|mice|fish|sheep")
_TOKEN = re.compile(
    r"\u00b0 ?[CF](?![a-zA-Z])|[^\W\d_]+|[$\u20ac\u00a3\u00a5\u20b9\u00b0]|-?\d|[/()]"
)
_NAMES = {"$": "dollar", "\u20ac": "euro"}
_POWER_BEHIND = re.compile(r"(?<=[^\W\d_)]) (-?\d)(?! -?\d)")
_UNPLACED_DIGIT = re.compile(r"(?<!\*\*)(?<!\*\*-)\d")
_UNREADABLE = (ArithmeticError, AssertionError, TokenError, TypeError, ValueError)
"""Raised by pint for texts that are not units."""


@dataclass(frozen=True)
class Quantity:
    """A number as text, with the unique spelling of its unit ("" for none)."""

    value: str
    unit: str = ""
    unit_alters: bool = False
    """True if the unit changes the number, as in "5 pairs" or "5 or more"."""


@lru_cache(maxsize=4096)
def read_quantity(text: str, *, unit_expected: bool = False) -> Quantity:
    r"""Separate the number in ``text`` (normalized LaTeX) from its unit.

    Any ``\text`` after a number is its unit. So are known units and plurals outside ``\text``, but
    ``5m`` is a product, unless a unit is expected. Words such as million are factors.

    Example: ``r"512 \text{ square feet}"`` has the unit of ``"512 ft^2"``.
    """
    money: list[str] = []
    if currency := _CURRENCY.match(text):
        money, text = _tokens(currency["symbol"]), currency["sign"] + text[currency.end() :]
    for end in _END_OF_VALUE.finditer(text):
        value, rest = text[: end.end()], text[end.end() :]
        letters = _LETTERS_IN_TEXT.findall(rest) if _VARIABLES.fullmatch(rest) else ()
        if not _TEXT_LETTERS.issuperset(letters):
            continue
        if not _WHOLE.fullmatch(rest) or ("\u00b0" in rest and _ANGLE_FUNCTION.search(value)):
            continue
        if unit_expected or _is_surely_unit(rest):
            words = _tokens(rest)
            if words and words[0] in _SCALES:
                value = rf"({value})\cdot {_SCALES[words.pop(0)]}"
            alters = _alters(words) or words in _MULTIPLIERS
            return Quantity(value, _spelled(money + words), alters)
    return Quantity(text, _spelled(money))


def is_unit(text: str) -> bool:
    r"""Return True if ``text`` (normalized LaTeX) can be a unit, such as ``"m/s^{2}"``, and does
    not change the number."""
    return (
        bool(_WHOLE.fullmatch(text))
        and not _alters(_tokens(text))
        and all(word in _SHORT_NAMES or _known(word) for word in _bare_words(text))
    )


def _alters(words: Sequence[str]) -> bool:
    """Return True if these words change the number before them."""
    is_power_alone = bool(words) and all(word in _POWERS or word in "()/" for word in words)
    described = " ".join(word for word in words if word not in _POWERS)
    return is_power_alone or not is_plain(described)


def _is_surely_unit(text: str) -> bool:
    r"""Return True if all words outside ``\text`` are units rather than products of letters."""
    is_ratio = bool(re.search(r"[/^]|\\frac", text))
    return all(
        word in _SHORT_NAMES
        or not word.isascii()
        or (is_ratio and word in UNIT_LETTERS)
        or (len(word) > 3 and _known(word) is not None)
        or bool(_PLURAL.fullmatch(word))
        for word in _bare_words(text)
    )


def _bare_words(unit: str) -> list[str]:
    return [word for word in _tokens(re.sub(_TEXT, " ", unit)) if word[0].isalpha()]


def _tokens(unit: str) -> list[str]:
    r"""Return the words, powers, slashes and brackets of a unit; ``\frac{a}{b}`` is ``a/(b)``."""
    unit = re.sub(r"\\frac ?\{(.*)\} ?\{(.*)\}", r"\1 / ( \2 )", unit)
    unit = re.sub(r"\\mu(?![a-zA-Z])[ {]*(?:\\text ?\{)? ?", "\u00b5", unit)
    unit = re.sub(_SIGN, lambda sign: _SIGNS[sign[1] or sign[2]], unit)
    unit = re.sub(r"\\(?:text|cdot|times)(?![a-zA-Z])|[{}]", " ", unit)
    return [token.replace(" ", "") for token in _TOKEN.findall(" ".join(unit.split()))]


def _known(word: str) -> str | None:
    """Return pint's name of a unit with its prefix. (pint would read "units" as micronits.)"""
    for spelled in dict.fromkeys([word, word.casefold()] if word not in ("unit", "units") else ()):
        with suppress(pint.UndefinedUnitError):
            return _REGISTRY.get_name(spelled)
    return None


def _spelled(tokens: list[str]) -> str:
    """Return one spelling for equal units: in pint's base units if it knows them, else as words."""
    parts = [_NAMES.get(token, token) for token in tokens]
    if parts[:-1] and parts[0] in ("degree", "degrees"):  # degrees Celsius
        del parts[0]
    text = _POWER_BEHIND.sub(r"**\1", " ".join(parts))
    words = text.replace(" / ", " per ").casefold()
    if not tokens or _UNPLACED_DIGIT.search(text) or not {"unit", "units"}.isdisjoint(parts):
        return words
    for spelled in (text, text.casefold()):
        with suppress(pint.PintError, *_UNREADABLE):
            unit = _REGISTRY.parse_units(spelled)
            if any(name in str(unit) for name in _OFFSET_UNITS):
                return str(unit)
            factor, base = _REGISTRY.get_root_units(unit)
            return f"{factor:.9g} {base}"
    return " ".join(word.removesuffix("s") for word in words.split())
