r"""Math: the expression in the last ``\boxed{}``, compared with the gold.

The outer structure is compared here, because an engine that simplifies loses it: words, lists,
tuples, intervals, names, units, bases. The algebra inside is math-verify's.

What counts as the same:

* Numbers and expressions of equal value, whatever their form; decimals are exact, so that 0.75
  is 3/4 and 0.33 is not 1/3. Of ``a \approx b`` the exact side counts.
* Lists and sets in any order, element by element: ``3, 5``, ``\{5, 3\}``, ``x = 3 \text{ or }
  x = 5``, ``4 \pm 1``, and two boxes joined by a comma, "and" or "or".
* Tuples and intervals in order, with the same brackets. A tuple is no set. ``x = 1, y = 2`` is
  also the pair ``(1, 2)``, by the order of the names.
* Sets of numbers as intervals, their unions, inequalities or ``\{x \mid ...\}``.
* A value with or without the name of what it is the value of: ``x = 5`` or ``5``. Where both
  sides give a name, or the gold gives several, the names must agree.
* A number with or without its unit or base; two different units (or bases) are wrong, and none
  is converted. A percent sign on one side is read both ways: 25 % is 25 or 0.25.
* Words in ``\text`` without regard to case. Without it, four letters in a row make a word, in
  which only the first may be in either case; "yes", "no" and "odd" are words, too. Letters of
  a formula keep their case.

What would take hundreds of thousands of digits to work out is wrong, not computed.
"""

import re
from collections.abc import Sequence
from itertools import product

from comas.verification.algebra import is_equal_expression
from comas.verification.boxed import last_boxed_list
from comas.verification.latex import MAX_ANSWER_CHARS, normalize, split, unwrap
from comas.verification.sets import is_equal_set
from comas.verification.units import read_quantity
from comas.verification.verdict import Verdict

_LIST_SEPARATOR = re.compile(r"[,;]|\\lor(?![a-zA-Z])")
_EQUALITY = re.compile(r"(?<![<>!:=])=(?!=)|\\in(?![a-zA-Z])")
_APPROXIMATION = re.compile(r"\\approx(?![a-zA-Z])")
_PLUS_MINUS = re.compile(r"\\(pm|mp)(?![a-zA-Z])")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
# Between two words or digits a space is needed, and braces around more than a character.
_IDLE_SPACE = re.compile(r"(?<![^\W_]) | (?![^\W_])")
_BRACED_SCRIPT = re.compile(r"([_^])\{(\w)\}")
_RATIO = re.compile(":")
_SUBSCRIPT = re.compile(r"_(?:\{[^{}]*\}|\w)")
# An unknown, f(x), a word, or a tuple of unknowns.
_SIMPLE_NAME = re.compile(
    r"(?:\\text ?\{[^{}]*\}|\\?[a-zA-Z]+'*)(?:_(?:\{[^{}]*\}|\w))?(?: ?\([a-zA-Z, ]*\))?"
    r"|\([a-zA-Z\\_0-9, ]*\)"
)
# What may be asked for, as in f(2) = 5 or x^2 + y^2 = 5, but no multiple, as in 2x = 5.
_QUANTITY_NAME = re.compile(r"(?![-+\d.]|\\frac ?\{-?\d).*[a-zA-Z].*", re.DOTALL)
_WRAPPED_WORDS = re.compile(r"\\text ?\{([^{}]*)\}")
_WORDS = re.compile(r"[^\W\d_](?:[^\W\d_]|[ '.-])*")
# A formula has no letters in a row that many, and has spaces around its signs.
_BARE_WORDS = re.compile(r"(?=.*[^\W\d_]{4})[^\W\d_]+(?:[-' ][^\W\d_]+)*")
_SHORT_WORDS = {"yes", "no", "odd"}
_PRODUCT_SIGN = re.compile(r"\\(?:cdot|times)(?![a-zA-Z])|[ *]")
_BASED = re.compile(r" ?(-?[0-9A-F]*\d[0-9A-F]*) ?(?:_ ?(?:base)?|(?:in )?base) ?(\w+) ?")
_BASE_NAMES = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_BASES = {name: str(base) for base, name in enumerate(_BASE_NAMES, start=2)}
_SET_SIGN = re.compile(
    r"[<>]|\\(?:le|ge|ne|cup|cap|setminus|mathbb|emptyset|varnothing)(?![a-zA-Z])"
)


def verify_math(response: str, gold: str) -> Verdict:
    r"""Whether the last ``\boxed{}`` of ``response`` equals ``gold`` (LaTeX, not boxed).

    Without a box it is unanswered; a box that cannot be read is wrong. Takes no time limit,
    and one input can hang the engine: call it through ``Verifier``, which limits it.

    Raises ValueError when the gold cannot be read, and whatever math-verify and sympy raise on
    an expression that they cannot compare.

    Example: ``verify_math(r"So \boxed{\frac{2}{4}}", r"\frac12") == "correct"``
    """
    if not normalize(gold):
        raise ValueError(f"the gold answer {gold!r} cannot be read as math")
    answer = last_boxed_list(response)
    if answer is None:
        return "unanswered"
    if len(answer) > MAX_ANSWER_CHARS:
        return "wrong"
    return "correct" if _is_equal(normalize(gold), normalize(answer)) else "wrong"


def _is_equal(gold: str, answer: str) -> bool:
    """Whether two normalized answers are the same, in any reading of their commas."""
    if _key(gold) == _key(answer):
        return True
    return any(_is_equal_list(*pair) for pair in product(_readings(gold), _readings(answer)))


def _key(text: str) -> str:
    """Equal for texts that differ only in spaces and braces that print nothing."""
    return _BRACED_SCRIPT.sub(r"\1\2", _IDLE_SPACE.sub("", text))


def _readings(text: str) -> list[str]:
    """``6,600`` may be one number or two, and ``x = 1, y = 2`` a pair."""
    readings = [_THOUSANDS.sub(lambda m: m[0].replace(",", ""), text), text]
    values = dict(map(_named, elements := split(text, _LIST_SEPARATOR)))
    if "" not in values and 1 < len(values) == len(elements):
        readings.append(f"({', '.join(values[name] for name in sorted(values))})")
    return list(dict.fromkeys(readings))


def _is_equal_list(gold: str, answer: str) -> bool:
    wanted, given = _elements(gold), _elements(answer)
    has_several_names = len({name for name, _ in map(_named, wanted)}) > 1
    if 0 < len(wanted) == len(given) and _match(wanted, given, names_needed=has_several_names):
        return True
    # One set may be written in many ways: an interval as an inequality, two as their union.
    is_set = _SET_SIGN.search(gold) or _SET_SIGN.search(answer)
    return bool(is_set) and is_equal_set(gold, answer)


def _match(wanted: Sequence[str], given: Sequence[str], *, names_needed: bool) -> bool:
    """Whether every wanted element is given, as often as it is wanted, in any order."""
    left = list(given)
    for element in wanted:
        for position, candidate in enumerate(left):
            if _is_equal_element(element, candidate, name_needed=names_needed):
                del left[position]
                break
        else:
            return False
    return not left


def _elements(text: str) -> list[str]:
    r"""The elements of a list or set, each ``\pm`` as two."""
    name, value = _named(text)
    opening, inner, _ = unwrap(value if name else text)
    if opening == r"\{" and not re.search(r":|\\mid|\||\\colon", inner):
        text = inner
    elements = [element for element in split(text, _LIST_SEPARATOR) if element]
    return [signed for element in elements for signed in _both_signs(element)]


def _both_signs(element: str) -> list[str]:
    if not _PLUS_MINUS.search(element):
        return [element]
    upper = _PLUS_MINUS.sub(lambda sign: "+" if sign[1] == "pm" else "-", element)
    lower = _PLUS_MINUS.sub(lambda sign: "-" if sign[1] == "pm" else "+", element)
    return [upper, lower]


def _is_equal_element(gold: str, answer: str, *, name_needed: bool) -> bool:
    gold_name, gold_value = _named(gold)
    if not gold_name and len(split(gold, _EQUALITY)) > 1:
        return is_equal_expression(gold, answer)  # an equation, which names nothing
    sides = _sides(answer)
    has_name = len(sides) > 1 and bool(_QUANTITY_NAME.fullmatch(sides[0]))
    if gold_name and len(sides) > 1 and not _is_same_name(gold_name, sides[0]):
        return is_equal_expression(gold, answer)  # perhaps the same equation in another form
    if name_needed and not has_name:
        return False
    values = sides[1:] if has_name else sides
    return all(_is_equal_value(gold_value, value) for value in values)


def _sides(text: str) -> list[str]:
    """The sides of a chain of equations, without what an approximation adds."""
    exact, *approximate = split(text, _APPROXIMATION)
    if approximate and (not exact or _SIMPLE_NAME.fullmatch(exact)):
        return [side for side in (exact, approximate[0]) if side]
    return split(exact, _EQUALITY)


def _named(text: str) -> tuple[str, str]:
    """The name of an unknown that is given a value, and the value: "x = 5" gives ("x", "5")."""
    sides = _sides(text)
    if len(sides) > 1 and _SIMPLE_NAME.fullmatch(sides[0]):
        return sides[0], sides[-1]
    return "", sides[0] if len(sides) == 1 else text


def _is_same_name(gold: str, answer: str) -> bool:
    """x_1 and x_2 are values of x."""
    answer = answer if "_" in gold else _SUBSCRIPT.sub("", answer)
    return _key(gold) == _key(answer)


def _is_equal_value(gold: str, answer: str) -> bool:
    if _key(gold) == _key(answer):
        return True
    if gold.casefold() in _SHORT_WORDS:
        return gold.casefold() == _unwrap_text(answer).rstrip(" .").casefold()
    if _BARE_WORDS.fullmatch(gold) or _words(gold):
        return _is_equal_text(gold, answer)
    terms, answer_terms = split(gold, _RATIO), split(answer, _RATIO)
    if len(terms) > 1 and len(answer_terms) > 1:
        return len(terms) == len(answer_terms) and all(map(_is_equal_value, terms, answer_terms))
    opening, inner, closing = unwrap(gold)
    wanted = split(inner, _LIST_SEPARATOR)
    answer_opening, answer_inner, answer_closing = unwrap(answer)
    given = split(answer_inner, _LIST_SEPARATOR)
    if (len(wanted) > 1 and opening) or (len(given) > 1 and answer_opening):
        return (
            (opening, closing) == (answer_opening, answer_closing)
            and len(wanted) == len(given)
            and all(map(_is_equal, wanted, given))
        )
    return _is_equal_quantity(
        inner if opening in ("(", "{") else gold,
        answer_inner if answer_opening in ("(", "{") else answer,
    )


def _is_equal_text(gold: str, answer: str) -> bool:
    """Whether words agree up to their case, or four letters and more as a product of them."""
    if words := _words(gold) or _words(answer):
        return (
            words
            == _words(rf"\text{{{_unwrap_text(gold)}}}")
            == _words(rf"\text{{{_unwrap_text(answer)}}}")
        )
    if _BARE_WORDS.fullmatch(answer):
        return gold[0].swapcase() + gold[1:] == answer  # as at the start of a sentence
    return sorted(gold.replace(" ", "")) == sorted(_PRODUCT_SIGN.sub("", answer))


def _words(text: str) -> str | None:
    r"""What stands in ``\text``, if it is words, in one spelling."""
    wrapped = _WRAPPED_WORDS.fullmatch(text)
    if wrapped is None or not _WORDS.fullmatch(words := wrapped[1].strip(" .()*")):
        return None
    return " ".join(words.casefold().replace("-", " ").split())


def _is_equal_quantity(gold: str, answer: str) -> bool:
    """Compare values with their units, bases and percent signs, any of which may be left out."""
    gold, gold_base = _split_base(_unwrap_text(gold))
    answer, base = _split_base(_unwrap_text(answer))
    wanted = read_quantity(gold)
    given = read_quantity(answer, unit_expected=bool(wanted.unit))
    if (gold_base and base and gold_base != base) or (
        wanted.unit and given.unit and wanted.unit != given.unit
    ):
        return False
    value, gold_value = given.value.strip(), wanted.value.strip()
    number, gold_number = value.rstrip(" %"), gold_value.rstrip(" %")
    if is_equal_expression(gold_number, number):
        return True
    is_percent, is_gold_percent = value.endswith("%"), gold_value.endswith("%")
    if is_percent and not is_gold_percent:
        return is_equal_expression(gold_number, rf"\frac{{{number}}}{{100}}")
    if is_gold_percent and not is_percent:
        return is_equal_expression(rf"\frac{{{gold_number}}}{{100}}", number)
    return False


def _unwrap_text(text: str) -> str:
    wrapped = _WRAPPED_WORDS.fullmatch(text)
    return wrapped[1].strip() if wrapped else text


def _split_base(text: str) -> tuple[str, str]:
    """The digits and the base of a number such as 2134_6; "" for no base."""
    based = _BASED.fullmatch(re.sub(r"(?:\\text|[{}() ])+", " ", text))
    return (based[1], _BASES.get(based[2], based[2])) if based else (text, "")
