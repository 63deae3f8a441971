"""Literals that the checker and the program exchange: as JSON, never as code.

| value | its form |
|---|---|
| None, bool, float, str, an int of up to 64 bits | itself |
| a longer int | ``["int", "0x1fff..."]`` |
| any other literal | ``[name of its type, part, ...]`` |
| one of these types | ``["type", name]`` |

Types are exact, since the methods of a subclass are its owner's code. A form is not trusted:
decoding raises some exception for anything that was not encoded here, and runs no code of the
sender's.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from typing import Any

Form = Any
"""Values that ``json`` knows: None, bool, int, float, str, and lists of those."""

_AS_THEY_ARE = frozenset({type(None), bool, float, str})


class NotALiteralError(TypeError):
    """A value that cannot cross; its message is the name of its type."""


def _items(value: Any) -> Iterable[Any]:
    return chain.from_iterable(value.items())


def _mapping(*parts: Any) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


_PARTS: dict[type, tuple[Callable[[Any], Iterable[Any]], Callable[..., Any]]] = {
    list: (iter, lambda *parts: list(parts)),
    tuple: (iter, lambda *parts: parts),
    set: (iter, lambda *parts: set(parts)),
    frozenset: (iter, lambda *parts: frozenset(parts)),
    dict: (_items, _mapping),
    OrderedDict: (_items, lambda *parts: OrderedDict(_mapping(*parts))),
    Counter: (_items, lambda *parts: Counter(_mapping(*parts))),
    defaultdict: (
        lambda v: (v.default_factory, *_items(v)),
        lambda factory, *parts: defaultdict(factory, _mapping(*parts)),
    ),
    deque: (lambda v: (v.maxlen, *v), lambda most, *parts: deque(parts, most)),
    bytes: (lambda v: (v.hex(),), bytes.fromhex),
    bytearray: (lambda v: (v.hex(),), bytearray.fromhex),
    complex: (lambda v: (v.real, v.imag), complex),
    range: (lambda v: (v.start, v.stop, v.step), range),
    Fraction: (lambda v: (v.numerator, v.denominator), Fraction),
    Decimal: (lambda v: (str(v),), Decimal),
}
"""type -> (a function that splits a value into parts, a function that rebuilds it from them)."""

_BUILD = {kind.__name__: build for kind, (_, build) in _PARTS.items()}
_TYPES: dict[str, type] = {kind.__name__: kind for kind in [bool, float, str, int, *_PARTS]}


def encode(value: Any) -> Form:
    """Return the form of a literal. Raises NotALiteralError for any other value, and RecursionError
    if ``value`` is nested too deeply."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**63 else ["int", hex(value)]
    if kind in _PARTS:
        return [kind.__name__, *map(encode, _PARTS[kind][0](value))]
    if kind is type and _TYPES.get(name := value.__name__) is value:
        return ["type", name]
    raise NotALiteralError(kind.__name__)


def decode(form: Form) -> Any:
    """Return the literal of a form. Raises any exception if it is invalid."""
    if type(form) is int or type(form) in _AS_THEY_ARE:
        return form
    match form:
        case ["int", str(digits)]:
            return int(digits, 16)
        case ["type", str(name)]:
            return _TYPES[name]
        case [str(name), *parts]:
            return _BUILD[name](*map(decode, parts))
    raise ValueError("not a form")
