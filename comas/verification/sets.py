r"""Compares sets of real numbers: intervals, unions, inequalities and set-builder notation.

Alternatives, conditions and set-builder notation are split here, since the parser of LaTeX cannot
read them.
"""

import re
from collections.abc import Callable
from contextlib import suppress

import sympy
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from comas.verification.algebra import are_equal, read_computable
from comas.verification.latex import split, unwrap

_AND = re.compile(r",")
_JOINTS = (
    (re.compile(r"\\lor(?![a-zA-Z])|;"), sympy.Union),
    (_AND, sympy.Intersection),
    (re.compile(r"\\cup(?![a-zA-Z])"), sympy.Union),
    (re.compile(r"\\cap(?![a-zA-Z])"), sympy.Intersection),
)
_ELEMENT_OF = re.compile(r"\\in(?![a-zA-Z])")
_NOT_ELEMENT_OF = re.compile(r"\\notin(?![a-zA-Z])")
SUCH_THAT = re.compile(r"\\mid(?![a-zA-Z])|[|:]")
_SET_SIGN = re.compile(r"[<>]|\\(?:le|ge|ne|cup|cap|setminus|notin|mathbb|emptyset)(?![a-zA-Z])")
_ENDLESS = re.compile(r"\\infty(?![a-zA-Z])")

_NamedSet = tuple[frozenset[str], sympy.Set]
"""(the variable of an inequality; empty for an interval; the set)"""


def is_set(text: str) -> bool:
    """Return True if ``text`` can only be a set of numbers; ``(1, 2)`` may also be a pair."""
    if _SET_SIGN.search(text):
        return True
    *variable, text = split(text, _ELEMENT_OF)
    opening, inner, closing = unwrap(text)
    is_interval = opening in ("(", "[") and len(split(inner, _AND)) == 2
    is_named = len(variable) == 1 and bool(re.fullmatch(r"[a-zA-Z]", variable[0]))
    return is_interval and (
        is_named or "[" in opening or "]" in closing or bool(_ENDLESS.search(inner))
    )


def is_equal_set(gold: str, answer: str) -> bool:
    r"""True for sets of the same numbers, and of the same variable if both name one, such as
    ``(-\infty, 2) \cup (3, \infty)`` and ``x < 2 \lor x > 3``."""
    wanted, given = _read_set(gold), _read_set(answer)
    if wanted is None or given is None or len(wanted[0] | given[0]) > 1:
        return False
    is_finite = [isinstance(one, sympy.FiniteSet) for _, one in (wanted, given)]
    return is_finite[0] == is_finite[1] and are_equal(wanted[1], given[1])


def _read_set(text: str) -> _NamedSet | None:
    opening, inner, _ = unwrap(text)
    if opening == r"\{":
        if mark := SUCH_THAT.search(inner):
            return _read_set(f"{inner[: mark.start()]}, {inner[mark.end() :]}")
        if is_set(inner):
            return None  # a set of sets
    for joint, join in _JOINTS:
        if len(parts := [part for part in split(text, joint) if part]) > 1:
            return _joined(parts, join)
    outside = split(text, _NOT_ELEMENT_OF)
    if len(outside) == 2 and (without := _read_set(outside[1])) is not None:
        return frozenset(outside[:1]), sympy.Complement(sympy.Reals, without[1])
    *variable, text = split(text, _ELEMENT_OF)
    if re.fullmatch(r"[a-zA-Z]", text):
        return frozenset([text]), sympy.Reals
    expression = read_computable(text)
    if isinstance(expression, sympy.Set):
        return frozenset(variable), expression.doit()
    if isinstance(expression, Relational | Boolean) and len(expression.free_symbols) == 1:
        with suppress(NotImplementedError, AttributeError):  # the latter by a bug of sympy
            return frozenset(map(str, expression.free_symbols)), expression.as_set()
    return None


def _joined(parts: list[str], join: Callable[..., sympy.Set]) -> _NamedSet | None:
    """Return the parts as one set; None if one part is the whole, so that they are alternatives."""
    sets = [one for part in parts if (one := _read_set(part)) is not None]
    names = frozenset[str]().union(*(names for names, _ in sets))
    if len(sets) < len(parts) or len(names) > 1:
        return None
    numbers = [one for _, one in sets]
    whole = join(*numbers)
    is_one_enough = whole in numbers and sympy.Reals not in numbers
    return None if is_one_enough else (names, whole)
