r"""Math: compares the expression in the last ``\boxed{}`` with the gold.

The outer structure (words, lists, tuples, intervals, names, units, bases) is compared here, because
simplifying would lose it. The gold decides the kind of answer, and the response is read as that
kind. The algebra inside is left to math-verify.

These are equal:

* Numbers and expressions of equal value in any form; decimals are exact: 0.75 is 3/4, but 0.33 is
  not 1/3. In ``a \approx b`` the exact side counts.
* Digits in strict groups of three with commas and no spaces are one number: 58,500 is no list.
  Within brackets a comma separates.
* Lists and sets in any order, element by element: ``3, 5``, ``\{5, 3\}``, ``x = 3 \text{ or }
  x = 5``, ``4 \pm 1``, and two boxes joined by a comma, "and" or "or".
* Tuples and intervals in order, with the same brackets. A tuple is no set, but a vector is read as
  a tuple if the gold is one. ``x = 1, y = 2``, or the system of these two lines, is also the pair
  ``(1, 2)``, in the order of the names.
* Sets of numbers as intervals, unions, inequalities or ``\{x \mid ...\}``. Since ``(1, 2)`` may be
  a pair, it equals no inequality.
* A value with or without its name: ``x = 5``, ``5 = x`` or ``5``. If both sides give a name, or the
  gold gives several, the names must agree. So must the set of a letter, as in ``k\pi, k \in
  \mathbb{Z}``; the default is the integers.
* A number with or without its unit or base; different units (or bases) are wrong, and none is
  converted. Words that change the number ("5 pairs", "at least 5") cannot be left out. A percent
  sign on one side is read both ways: 25 % is 25 or 0.25. Degrees equal radians if these are named
  or a multiple of ``\pi``. A modulus is optional, like a unit.
* Words in ``\text``, ignoring case. Outside, four letters in a row are a word, whose first letter
  may have either case; so are "yes", "no" and "odd". Letters of formulas keep their case, and
  capitals that name points their order.

An answer that would take hundreds of thousands of digits to compute is wrong.
"""

import re
from collections.abc import Sequence

from comas.verification.algebra import is_equal_expression, read_gold
from comas.verification.boxed import last_alternatives, last_boxed_list
from comas.verification.choice import read_letter
from comas.verification.forms import Verdict
from comas.verification.latex import (
    MAX_ANSWER_CHARS,
    join_thousands,
    normalize,
    split,
    trim,
    unwrap,
)
from comas.verification.sets import SUCH_THAT, is_equal_set, is_set
from comas.verification.units import UNIT_LETTERS, Quantity, read_quantity
from comas.verification.words import (
    has_other_points,
    has_words,
    is_asked_for,
    is_equal_text,
    is_name,
    is_same_name,
    is_text,
    split_domain,
    strip_phrases,
    unwrapped_number,
)

_LIST_SEPARATOR = re.compile(r"[,;]|\\lor(?![a-zA-Z])")
_EQUALITY = re.compile(r"(?<![<>!:=])=(?!=)|\\(?:in|equiv)(?![a-zA-Z])")
_APPROXIMATION = re.compile(r"\\approx(?![a-zA-Z])")
_IMPLICATION = re.compile(r"\\implies(?![a-zA-Z])")
_PLUS_MINUS = re.compile(r"\\(pm|mp)(?![a-zA-Z])")
_RATIO = re.compile(r":|\\text ?\{ ?to ?\}")
_OPTION = re.compile(r"\\text ?\{ ?\(([A-Z])\) ?\}")
_BASED = re.compile(r" ?(-?[0-9A-F]*\d[0-9A-F]*) ?(?:_ ?(?:base)?|(?:in )?base) ?(\w+) ?")
_CONGRUENCE = re.compile(r"(.+?) ?\\pmod\{(\w+)\}")
_INTEGER = re.compile(r"-?\d+")
_VECTOR = re.compile(r"\\begin\{[pb]matrix\}((?:(?!\\begin|,).)*)\\end\{[pb]matrix\}", re.DOTALL)
_LETTER_AS_UNIT = re.compile(rf".*[\d}}] [{''.join(sorted(UNIT_LETTERS))}]")
_VARIABLE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]")
_DEGREE, _RADIAN = (read_quantity(f"1 {unit}").unit for unit in ("degree", "radian"))


def verify_math(response: str, gold: str) -> Verdict:
    r"""Judge whether the last ``\boxed{}`` of ``response`` equals ``gold`` (LaTeX, not boxed).

    No box is unanswered; an unreadable box is wrong. Some inputs never end: call it through
    ``Verifier``, which limits it.

    Raises ValueError if the gold cannot be read, unless the response repeats it.
    """
    wanted = normalize(gold)
    if not wanted:
        raise ValueError(f"the gold answer {gold!r} cannot be read as math")
    answer = last_boxed_list(response)
    if answer is None:
        _check_readable(wanted)
        return "unanswered"
    if len(answer) > MAX_ANSWER_CHARS:
        return "wrong"
    if _is_equal(wanted, normalize(answer)):
        return "correct"
    forms = last_alternatives(response)
    is_one = bool(forms) and all(_is_equal(wanted, normalize(form)) for form in forms)
    return "correct" if is_one else "wrong"


def _is_equal(gold: str, answer: str) -> bool:
    if gold == answer:
        return True
    if option := _OPTION.fullmatch(gold):
        return read_letter(answer) == option[1]
    gold, domain = split_domain(strip_phrases(gold))
    answer, given = split_domain(strip_phrases(_IMPLICATION.split(answer)[-1].strip()))
    default = "R" if is_set(gold) else "Z"
    if given is not None and given.of != (domain.of if domain is not None else default):
        return False
    if domain is not None and given is not None:
        answer = re.sub(rf"(?<![\\a-zA-Z]){given.letter}(?![a-zA-Z])", domain.letter, answer)
    if is_text(gold):
        return is_equal_text(gold, answer)
    gold = join_thousands(gold)
    readings = {join_thousands(answer): None}
    if len(_elements(gold)) > 1:
        readings[answer] = None  # the commas may separate
    return any(
        _is_equal_list(gold, reading)
        or any(_is_equal_list(gold, pair) for pair in _as_pair(reading))
        or any(_is_equal_list(pair, reading) for pair in _as_pair(gold))
        for reading in readings
    )


def _as_pair(text: str) -> list[str]:
    """Return ``x = 1, y = 2`` as ``["(1, 2)"]``; empty unless it names two unknowns or more."""
    values = dict(map(_named, elements := split(text, _LIST_SEPARATOR)))
    if "" in values or not 1 < len(values) == len(elements):
        return []
    order = sorted(values, key=lambda name: (not name[0].isalpha(), name))  # r before \\theta
    return [f"({', '.join(values[name] for name in order)})"]


def _is_equal_list(gold: str, answer: str) -> bool:
    wanted, given = _elements(gold), _elements(answer)
    has_several_names = len({name for name, _ in map(_named, wanted)} - {""}) > 1
    if 0 < len(wanted) == len(given) and _match(wanted, given, names_needed=has_several_names):
        return True
    # A set has many forms: an interval is an inequality, two intervals are a union.
    return is_set(gold) and is_equal_set(gold, answer)


def _match(wanted: Sequence[str], given: Sequence[str], *, names_needed: bool) -> bool:
    """Return True if each wanted element is given exactly once, in any order."""
    left = list(given)
    for element in wanted:
        equal = (one for one in left if _is_equal_element(element, one, name_needed=names_needed))
        if (found := next(equal, None)) is None:
            return False
        left.remove(found)
    return not left


def _elements(text: str) -> list[str]:
    r"""Return the elements of a list or set; ``\pm`` makes two."""
    sides = _sides(text)
    is_named = len(sides) > 1 and is_asked_for(sides[0])
    opening, inner, _ = unwrap(sides[-1] if is_named else text)
    if opening == r"\{" and not SUCH_THAT.search(inner) and not is_set(inner):
        text = inner
    # A pair may be one of several: {x = 1, y = 2}.
    elements = [
        (_as_pair(unwrap(element)[1]) if element.startswith("{") else []) or [element]
        for element in split(text, _LIST_SEPARATOR)
        if element
    ]
    return [signed for [element] in elements for signed in _both_signs(element)]


def _both_signs(element: str) -> list[str]:
    if not _PLUS_MINUS.search(element):
        return [element]
    upper = _PLUS_MINUS.sub(lambda sign: "+" if sign[1] == "pm" else "-", element)
    return [upper, _PLUS_MINUS.sub(lambda sign: "-" if sign[1] == "pm" else "+", element)]


def _is_equal_element(gold: str, answer: str, *, name_needed: bool) -> bool:
    gold_name, gold_value = _named(gold)
    if not gold_name and len(split(gold, _EQUALITY)) > 1:
        return is_equal_expression(gold, answer)  # an equation that names no value
    sides = _sides(answer)
    has_name = len(sides) > 1 and is_asked_for(sides[0])
    if gold_name and len(sides) > 1 and not is_same_name(gold_name, sides[0]):
        # Perhaps the same equation in another form, which congruences do not have.
        return r"\pmod" not in gold and is_equal_expression(gold, answer)
    if name_needed and not has_name:
        return False
    values = sides[1:] if has_name else sides
    return all(_is_equal_value(gold_value, value) for value in values)


def _sides(text: str) -> list[str]:
    """Return the sides of a chain of equations, a name first, without an added approximation."""
    exact, *approximate = split(text, _APPROXIMATION)
    if approximate and (not exact or is_name(exact)):
        return [side for side in (exact, approximate[0]) if side]
    sides = list(map(trim, split(exact, _EQUALITY)))
    is_name_last = len(sides) == 2 and is_name(sides[1]) and not is_asked_for(sides[0])
    return sides[::-1] if is_name_last else sides


def _named(text: str) -> tuple[str, str]:
    """Return an unknown's name ("" for none) and its value: "x = 5" gives ("x", "5")."""
    sides = _sides(text)
    if len(sides) > 1 and is_name(sides[0]):
        return sides[0], sides[-1]
    return "", sides[0] if len(sides) == 1 else text


def _is_equal_value(gold: str, answer: str) -> bool:
    if gold == answer:
        return True
    if is_text(gold):
        return is_equal_text(gold, answer)
    terms, answer_terms = split(gold, _RATIO), split(answer, _RATIO)
    if len(terms) > 1 and len(answer_terms) > 1:
        return len(terms) == len(answer_terms) and all(map(_is_equal_value, terms, answer_terms))
    opening, inner, closing = unwrap(gold)
    wanted = split(inner, _LIST_SEPARATOR)
    if len(wanted) > 1 and opening == "(":
        answer = _as_tuple(answer)
    answer_opening, answer_inner, answer_closing = unwrap(answer)
    given = split(answer_inner, _LIST_SEPARATOR)
    if (len(wanted) > 1 and opening) or (len(given) > 1 and answer_opening):
        return (
            (opening, closing) == (answer_opening, answer_closing)
            and len(wanted) == len(given)
            and all(map(_is_equal, wanted, given))
        )
    return not has_other_points(gold, answer) and _is_equal_quantity(
        inner if opening in ("(", "{") else gold,
        answer_inner if answer_opening in ("(", "{") else answer,
    )


def _as_tuple(text: str) -> str:
    """Return a row or column vector as a tuple; any other text unchanged."""
    vector = _VECTOR.fullmatch(text)
    if vector is None or ("&" in vector[1]) == (r"\\" in vector[1]):
        return text
    cells = re.split(r"&|\\\\", vector[1].strip().removesuffix(r"\\"))
    return f"({', '.join(cells)})"


def _is_equal_quantity(gold: str, answer: str) -> bool:
    """Compare values with their optional units, bases and percent signs."""
    wanted, gold_base = _read_quantity(gold)
    if has_words(wanted.value):
        return is_equal_text(gold, answer)
    has_unit = _LETTER_AS_UNIT.fullmatch(answer) and not _VARIABLE.search(gold)
    given, base = _read_quantity(answer, unit_expected=bool(wanted.unit or has_unit))
    if wanted.unit != given.unit and _DEGREE in (wanted.unit, given.unit):
        angles = [radians for angle in (wanted, given) if (radians := _in_radians(angle))]
        if len(angles) == 2:
            return is_equal_expression(*angles)
    if (gold_base and base and gold_base != base) or not _are_units_compatible(wanted, given):
        return False
    values = wanted.value.strip(), given.value.strip()
    numbers = [value.rstrip(" %") for value in values]
    if is_equal_expression(*numbers):
        return True
    percents = [value.endswith("%") for value in values]
    if percents[0] == percents[1]:
        return False
    both = zip(numbers, percents, strict=True)
    return is_equal_expression(*(rf"\frac{{{n}}}{{100}}" if percent else n for n, percent in both))


def _in_radians(angle: Quantity) -> str:
    r"""Return the angle in radians; "" without a unit, unless it is a multiple of ``\pi``."""
    if angle.unit == _DEGREE:
        return rf"\frac{{({angle.value})\pi}}{{180}}"
    is_measure = angle.unit == _RADIAN or (not angle.unit and r"\pi" in angle.value)
    return angle.value if is_measure else ""


def _are_units_compatible(wanted: Quantity, given: Quantity) -> bool:
    """Return True if the units are equal or one is missing; a percent sign is a unit too."""
    if wanted.unit_alters or given.unit_alters:
        return wanted.unit == given.unit and wanted.unit_alters == given.unit_alters
    units = [quantity.unit or "%" * quantity.value.endswith("%") for quantity in (wanted, given)]
    return units[0] == units[1] or "" in units


def _read_quantity(text: str, *, unit_expected: bool = False) -> tuple[Quantity, str]:
    r"""Return a quantity with its base (6 in 2134_6), or with its modulus (8 in ``5 \pmod 8``), by
    which it is reduced; "" for neither."""
    text = unwrapped_number(text)
    if congruence := _CONGRUENCE.fullmatch(text):
        residue, modulus = congruence.groups()
        if _INTEGER.fullmatch(residue) and modulus.isdecimal() and int(modulus):
            residue = str(int(residue) % int(modulus))
        return Quantity(residue), f"mod {modulus}"
    based = _BASED.fullmatch(re.sub(r"(?:\\text|[{}() ])+", " ", text))
    if based:
        return Quantity(based[1]), unwrapped_number(based[2])
    return read_quantity(text, unit_expected=unit_expected), ""


def _check_readable(gold: str) -> None:
    """Raise ValueError if a part of ``gold`` (normalized) cannot be read."""
    if _OPTION.fullmatch(gold):
        return
    gold = join_thousands(split_domain(strip_phrases(gold))[0])
    if is_text(gold) or is_equal_set(gold, gold):
        return
    for element in _elements(gold):
        for value in split(_named(element)[1], _RATIO):
            opening, inner, _ = unwrap(value)
            parts = split(inner, _LIST_SEPARATOR)
            if opening and len(parts) > 1:
                list(map(_check_readable, parts))
            elif not is_text(value):
                quantity, _ = _read_quantity(value)
                if not has_words(quantity.value):
                    read_gold(quantity.value.strip().rstrip(" %"))
