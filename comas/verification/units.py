r"""Units behind a number: told from the number and compared, never converted."""

import re
from dataclasses import dataclass

_SPELLINGS = [
    ["mm", "millimeter", "millimetre"],
    ["cm", "centimeter", "centimetre"],
    ["m", "meter", "metre"],
    ["km", "kilometer", "kilometre"],
    ["in", "inch", "inches"],
    ["ft", "foot", "feet"],
    ["yd", "yard"],
    ["mi", "mile"],
    ["mg", "milligram"],
    ["g", "gram"],
    ["kg", "kilogram"],
    ["oz", "ounce"],
    ["lb", "pound"],
    ["ml", "milliliter", "millilitre"],
    ["l", "liter", "litre"],
    ["s", "sec", "second"],
    ["min", "minute"],
    ["h", "hr", "hour"],
    ["day"],
    ["week"],
    ["month"],
    ["yr", "year"],
    ["mph"],
    ["deg", "degree"],
    ["rad", "radian"],
    ["dollar", "usd"],
    ["cent"],
    ["unit"],
]
_CANONICAL = {name: names[0] for names in _SPELLINGS for name in names}
_POWERS = {"sq": "^2", "square": "^2", "squared": "^2", "cubic": "^3", "cubed": "^3"}
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_CURRENCY = re.compile(r"(?P<sign>[-+]?)\s*(?P<symbol>\\\$|\\pounds|[\u20ac\u00a3\u00a5\u20b9])\s*")

_NAMES = "|".join(
    sorted((n for n in [*_CANONICAL, *_POWERS, *_SCALES] if len(n) > 1), key=len, reverse=True)
)
_SYMBOLS = (
    r"(?:[numkMGTcdhp\u00b5]|\\mu ?)?"
    r"(?:mol|Hz|Pa|eV|bar|rad|cal|atm|torr|Torr|psi|ppm|dB|m|s|g|K|J|N|W|V|A|C|F|T|H|L|M|\\Omega)"
)
_DEGREES = r"\u00b0(?: ?(?:[CFK]|\\text ?\{ ?[CFK] ?\})(?![a-zA-Z]))?"
_POWER = r"(?: ?\^ ?(?:\{ ?-? ?\d ?\}|-?\d))?"


def _units(name: str) -> str:
    r"""A pattern for units, of which one that stands outside ``\text`` must match ``name``."""
    word = rf"(?:\\mu ?)?\\text ?\{{[^{{}}\d,]*\}}|(?<![a-zA-Z\\])(?:{name})(?![a-zA-Z])"
    unit = rf"(?:{word}|{_DEGREES}){_POWER}"
    return rf"{unit}(?: ?(?:/|\\cdot|per)? ?{unit})*"


_QUANTITY = re.compile(
    rf"(?P<value>.*(?:[\d)}}!]|\\pi)) ?(?P<unit>{_units(rf'(?:{_NAMES})(?:es|s)?')})", re.DOTALL
)
_SI_UNITS = re.compile(_units(rf"(?:{_NAMES})(?:es|s)?|{_SYMBOLS}"))


@dataclass(frozen=True)
class Quantity:
    """A number as text, with its unit in one spelling ("" for none)."""

    value: str
    unit: str = ""


def read_quantity(text: str) -> Quantity:
    r"""Tell the number in ``text`` (normalized LaTeX) from the unit around it.

    Text behind a number is its unit, whatever it says; of words outside ``\text`` only known
    units of several letters are, since ``5m`` is a product. Words such as million are factors.

    Example: ``r"512 \text{ feet}^3"`` gives ``Quantity("512", "ft^3")``.
    """
    if currency := _CURRENCY.match(text):
        return Quantity(currency["sign"] + text[currency.end() :], _spelled(currency["symbol"]))
    quantity = _QUANTITY.fullmatch(text)
    if quantity is None:
        return Quantity(text)
    value, words = quantity["value"], _spelled(quantity["unit"]).split(" ")
    if words[0] in _SCALES:
        value = rf"({value})\cdot 10^{{{_SCALES[words.pop(0)]}}}"
    return Quantity(value, " ".join(words))


def is_unit(text: str) -> bool:
    r"""Whether ``text`` (normalized LaTeX) can be the unit of a number, as in ``"m/s^{2}"``.

    A word that scales the number is none.
    """
    return bool(_SI_UNITS.fullmatch(text)) and not _SCALES.keys() & set(_spelled(text).split(" "))


def _spelled(unit: str) -> str:
    """One spelling of a unit: lower case, singular, abbreviated, powers as ``^2``."""
    words: list[str] = []
    power = ""
    unit = unit.replace("\u00b0", " degree ").replace(r"\$", "dollar").replace(r"\text", " ")
    for word in re.findall(r"[^\W\d_]+(?:\.[^\W\d_]+)*|\^[ {]*-?\d|/", unit.lower()):
        if word[0] == "^":
            words[-1:] = [words[-1] + "^" + word.lstrip("^ {")] if words else []
        elif word in ("square", "sq", "cubic"):
            power = _POWERS[word]
        elif word in ("squared", "cubed"):
            words[-1:] = [words[-1] + _POWERS[word]] if words else []
        else:
            words.append(_singular("/" if word == "per" else word) + power)
            power = ""
    return " ".join(words)


def _singular(word: str) -> str:
    for candidate in (word, word.removesuffix("s"), word.removesuffix("es")):
        if candidate in _CANONICAL:
            return _CANONICAL[candidate]
    return word.removesuffix("s") if len(word) > 2 else word
