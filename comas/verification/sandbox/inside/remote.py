"""An object of the other side, as if it were here: what is done to it is done over there."""

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any, NoReturn

_PLAIN: dict[type, Callable[[Any], Any]] = {
    int: int.__index__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    tuple: lambda value: tuple(tuple.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    type({}.keys()): set,
    type({}.items()): set,
}
"""type -> its content of an instance, by no code of a subclass."""


def _plain(value: Any) -> Any:
    """The content of ``value`` as an instance of a builtin type, whatever its own class may make of
    it; None where it is none."""
    for kind, content in _PLAIN.items():
        if issubclass(type(value), kind):
            return content(value)
    return None


def _enter(manager: Any) -> Any:
    return type(manager).__enter__(manager)


def _exit(manager: Any, error: BaseException | None) -> Any:
    return type(manager).__exit__(manager, type(error) if error else None, error, None)


def _call(function: Any, *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


def _named(place: object, names: str) -> dict[str, Callable[..., Any]]:
    """The functions behind special methods: ``_named(builtins, "len")`` is of ``__len__``."""
    return {f"__{name}__": getattr(place, name) for name in names.split()}


_ARITHMETIC = (
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"),
    *("lshift", "rshift", "and", "xor", "or"),
)
OPERATORS: dict[str, Callable[..., Any]] = {
    f"__{name}__": getattr(operator, f"__{name}__")
    for name in ("eq", "ne", "lt", "le", "gt", "ge", *_ARITHMETIC)
}
"""Operations between two objects of the same side."""

CONVERSIONS: dict[str, Callable[..., Any]] = {
    **_named(builtins, "bool int float complex str repr hash len"),
    "__index__": operator.index,
    "__plain__": _plain,
}
"""Operations that ask what an object is, with no other operand."""

METHODS: dict[str, Callable[..., Any]] = {
    **CONVERSIONS,
    **_named(builtins, "iter next reversed format dir round abs"),
    **_named(operator, "getitem setitem delitem contains neg pos invert"),
    **_named(math, "trunc floor ceil"),
    "__call__": _call,
    "__getattr__": getattr,
    "__setattr__": setattr,
    "__delattr__": delattr,
    "__enter__": _enter,
    "__exit__": _exit,
    "__instancecheck__": lambda cls, value: isinstance(value, cls),
    "__subclasscheck__": lambda cls, other: issubclass(other, cls),
}
"""Operations on one object."""

OPERATIONS = OPERATORS | METHODS
"""Everything that one side may ask of the other: operation -> what is then called there."""


def _attribute(name: str) -> Any:
    """An attribute that every class has of its own, as the object's own class has it."""
    return property(lambda self: _REQUEST.__get__(self)("__getattr__", self, name))


class Remote:
    """An object of the other side.

    With a value of this side it is compared, and calculated, by its ``plain`` content. What has
    none is unequal, and raises TypeError with other operators: an object that learns what it is
    compared with could answer as pleases. Between two objects of the other side, their own
    methods decide.
    """

    # Python makes these names private, out of the way of the object's own attributes.
    __slots__ = ("__number", "__request")
    __class__ = _attribute("__class__")

    def __init__(self, request: Callable[..., Any], number: int) -> None:
        """``request(operation, *operands, **named)`` does one of OPERATIONS over there."""
        _REQUEST.__set__(self, request)
        _NUMBER.__set__(self, number)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        return _REQUEST.__get__(self)("__exit__", self, error)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("an object of the other side can be neither copied nor pickled")


_REQUEST: Any = vars(Remote)["_Remote__request"]
_NUMBER: Any = vars(Remote)["_Remote__number"]


def number_of(remote: Remote) -> int:
    return _NUMBER.__get__(remote)


def _method(operation: str) -> Callable[..., Any]:
    def method(self: Any, *operands: Any, **named: Any) -> Any:
        return _REQUEST.__get__(self)(operation, self, *operands, **named)

    return method


def _operator(operation: str, *, is_reflected: bool = False) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if type(other) is Remote and not is_reflected:
            return _REQUEST.__get__(self)(operation, self, other)
        content = _REQUEST.__get__(self)("__plain__", self)
        if content is None or type(content) is Remote:
            return NotImplemented
        operands = (other, content) if is_reflected else (content, other)
        return OPERATORS[operation](*operands)

    return method


for _name in METHODS.keys() - {"__exit__", "__plain__"}:
    setattr(Remote, _name, _method(_name))
for _name in OPERATORS:
    setattr(Remote, _name, _operator(_name))
for _name in _ARITHMETIC:
    setattr(Remote, f"__r{_name}__", _operator(f"__{_name}__", is_reflected=True))
for _name in ("__doc__", "__module__"):
    setattr(Remote, _name, _attribute(_name))
