r"""Sets of real numbers: intervals, their unions, inequalities and set-builder notation, compared.

To math-verify a list of two numbers is the open interval between them, and an inequality joined
to another by "or" is none.
"""

import re
from collections.abc import Callable

import sympy
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from comas.verification.algebra import are_equal, read_computable
from comas.verification.latex import split, unwrap

_OR = re.compile(r"\\lor(?![a-zA-Z])|;")
_AND = re.compile(r",")
_ELEMENT_OF = re.compile(r"\\in(?![a-zA-Z])")
_SUCH_THAT = re.compile(r"\\mid(?![a-zA-Z])|\\colon(?![a-zA-Z])|[|:]")

_NamedSet = tuple[frozenset[str], sympy.Set]
"""The variable of an inequality, none of an interval; and the set."""


def is_equal_set(gold: str, answer: str) -> bool:
    r"""Whether both are sets that hold the same numbers; of two variables, whether it is the same.

    Example: ``is_equal_set(r"(-\infty, 2) \cup (3, \infty)", r"x < 2 \lor x > 3")``
    """
    wanted, given = _read_set(gold), _read_set(answer)
    if wanted is None or given is None or len(wanted[0] | given[0]) > 1:
        return False
    is_finite = [isinstance(one, sympy.FiniteSet) for _, one in (wanted, given)]
    return is_finite[0] == is_finite[1] and are_equal([wanted[1]], [given[1]])


def _read_set(text: str) -> _NamedSet | None:
    opening, inner, _ = unwrap(text)
    if opening == r"\{" and (mark := _SUCH_THAT.search(inner)):
        text = f"{inner[: mark.start()]}, {inner[mark.end() :]}"
    if joined := _joined(text, _OR, sympy.Union) or _joined(text, _AND, _meet):
        return joined
    *variable, text = split(text, _ELEMENT_OF)
    names = frozenset(variable)
    if variable and not text:
        return None
    if re.fullmatch(r"[a-zA-Z]", text):
        return frozenset([text]), sympy.Reals
    for expression in read_computable(text):
        if isinstance(expression, sympy.Set):
            return names, expression.doit()
        if isinstance(expression, Relational | Boolean) and len(expression.free_symbols) == 1:
            try:
                return frozenset(map(str, expression.free_symbols)), expression.as_set()
            except NotImplementedError:
                return None
    return None


def _joined(text: str, joint: re.Pattern[str], join: Callable[..., sympy.Set]) -> _NamedSet | None:
    """The sets on both sides of "or" or of a comma, as one."""
    parts = [part for part in split(text, joint) if part]
    if len(parts) < 2:
        return None
    sets = [one for part in parts if (one := _read_set(part)) is not None]
    names = frozenset[str]().union(*(names for names, _ in sets))
    if len(sets) < len(parts) or len(names) > 1:
        return None
    return names, join(*(one for _, one in sets))


def _meet(*sets: sympy.Set) -> sympy.Set:
    """``x < 2, x > 3`` cannot mean both."""
    return sympy.Union(*sets) if (common := sympy.Intersection(*sets)).is_empty else common
