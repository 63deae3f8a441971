"""How values cross between the checker and the program: as JSON, and never as code.

| value | its form |
|---|---|
| None, bool, float, str, an int of up to 64 bits | itself |
| a longer int | ``["int", "0x1fff..."]`` |
| tuple, frozenset, bytes, complex, range, date, ... | ``["tuple", 1, 2]`` |
| list, dict, set, ... | ``["list", label, [], 1, 2]``; met again: ``["same", label]`` |
| a function or class of the standard library | ``["standard", module, name]`` |
| an exception; its class | ``["error", ...]``, ``["error class", ...]`` |
| anything else | ``["mine", number]``; to its owner: ``["yours", number]`` |

Types are exact: what is of a subclass stays with its owner, for its methods are its owner's code,
and the other side gets a ``Remote`` for it, always the same one. Exceptions are copied, for
``raise`` and ``except`` take nothing else, and a class of exceptions is imitated by one of the
same name and bases. By name the checker takes classes of ``builtins`` and of exceptions alone.

A mutable container has a label, its number in the order of crossing. As long as both sides hold
it, each message says first what its sender has changed in it, so that the two copies are as one.
Who alone holds it then says so, and both forget its label.

A form is not trusted. Decoding raises some exception (which, is left open) for whatever was
not encoded here, and runs none of the sender's code.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from operator import attrgetter, is_
from sys import getrefcount
from typing import Any

from .remote import Remote, number_of

Form = Any
"""Values that ``json`` knows: None, bool, int, float, str, and lists of those."""

_AS_THEY_ARE = frozenset({type(None), bool, float, str})


def _items(value: Any) -> Iterator[Any]:
    return chain.from_iterable(value.items())


def _put_items(value: Any, parts: list[Any]) -> None:
    for key, item in zip(parts[::2], parts[1::2], strict=True):
        value[key] = item


def _iso(value: Any) -> tuple[str]:
    return (value.isoformat(),)


_IMMUTABLE: dict[type, tuple[Callable[[Any], Iterable[Any]], Callable[..., Any]]] = {
    tuple: (iter, lambda *parts: parts),
    frozenset: (iter, lambda *parts: frozenset(parts)),
    bytes: (lambda v: (v.hex(),), bytes.fromhex),
    complex: (lambda v: (v.real, v.imag), complex),
    range: (lambda v: (v.start, v.stop, v.step), range),
    slice: (lambda v: (v.start, v.stop, v.step), slice),
    Fraction: (lambda v: (v.numerator, v.denominator), Fraction),
    Decimal: (lambda v: (str(v),), Decimal),
    date: (_iso, date.fromisoformat),
    time: (_iso, time.fromisoformat),
    datetime: (_iso, datetime.fromisoformat),
    timedelta: (lambda v: (v.days, v.seconds, v.microseconds), timedelta),
}
"""type -> the parts of a value, and what makes a value of them."""
_MUTABLE: dict[type, tuple[Callable[[Any], Iterable[Any]], Callable[[Any, list[Any]], object]]] = {
    list: (iter, list.extend),
    set: (iter, set.update),
    deque: (iter, deque.extend),
    bytearray: (lambda v: (bytes(v),), lambda v, parts: v.extend(*parts)),
    **dict.fromkeys((dict, OrderedDict, Counter, defaultdict), (_items, _put_items)),
}
"""type -> the parts of a container, and what puts them into an empty one."""
_ARGUMENTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    defaultdict: lambda v: (v.default_factory,),
    deque: lambda v: ((), v.maxlen),
}
"""type -> what an empty one is made with, where that is more than nothing."""
_IMMUTABLE_BY_NAME = {kind.__name__: build for kind, (_, build) in _IMMUTABLE.items()}
_MUTABLE_BY_NAME = {kind.__name__: kind for kind in _MUTABLE}

_MAX_WATCHED = 2000
"""Parts of all containers that both sides hold, which each message costs a look at."""
_TEXT = "_text_of_the_original"


class Codec:
    """Values to forms and back; the containers and objects of which both sides know. They see the
    same containers in the same order, and so give them the same labels."""

    def __init__(self, request: Callable[..., Any], *, is_checker: bool) -> None:
        self._request = request
        self._is_checker = is_checker
        self._given: list[Any] = []
        self._numbers: dict[int, int] = {}  # by id; _given keeps the object alive
        self._remotes: dict[int, Any] = {}
        self._imitated: dict[type, int] = {}
        self._containers: dict[int, Any] = {}
        self._labels: dict[int, int] = {}  # by id; _containers keeps the object alive
        self._contents: dict[int, list[Any]] = {}
        """The parts of each, when last both sides had the same."""
        self._next_label = 0

    def give_number(self, value: Any) -> int:
        """The number by which the other side may call ``value``: the first is 0."""
        number = self._numbers.setdefault(id(value), len(self._given))
        if number == len(self._given):
            self._given.append(value)
        return number

    def has_given(self, value: Any) -> bool:
        return id(value) in self._numbers

    def remote(self, number: Form) -> Any:
        if _checked(number) not in self._remotes:
            self._remotes[number] = Remote(self._request, number)
        return self._remotes[number]

    def encode(self, value: Any) -> Form:
        """Raises RecursionError where ``value`` is nested too deeply."""
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else ["int", hex(value)]
        if kind in _MUTABLE:
            return self._encode_container(value)
        if kind in _IMMUTABLE and _has_no_foreign_timezone(value):
            return [kind.__name__, *map(self.encode, _IMMUTABLE[kind][0](value))]
        if kind is Remote:
            return ["yours", number_of(value)]
        if (place := _place_in_library(value)) and (self._is_checker or place[0] == "builtins"):
            return ["standard", *place]
        if issubclass(kind, type) and issubclass(value, BaseException):
            return self._encode_error_class(value)
        if issubclass(kind, BaseException):
            attributes = [(n, v) for n, v in vars(value).items() if not n.startswith("_")]
            parts = map(self.encode, (value.args, tuple(attributes), str(value)))
            return ["error", self._encode_error_class(kind), *parts]
        return ["mine", self.give_number(value)]

    def decode(self, form: Form) -> Any:
        if type(form) is int or type(form) in _AS_THEY_ARE:
            return form
        match form:
            case [str(name), *parts] if name in _IMMUTABLE_BY_NAME:
                return _IMMUTABLE_BY_NAME[name](*map(self.decode, parts))
            case [str(name), label, list(arguments), *parts] if name in _MUTABLE_BY_NAME:
                value = _MUTABLE_BY_NAME[name](*map(self.decode, arguments))
                if label != self._register(value):
                    raise ValueError("labels out of order")
                self._refill(label, parts)
                return value
            case ["same", label]:
                return self._containers[label]
            case ["int", str(digits)]:
                return int(digits, 16)
            case ["mine", number]:
                return self.remote(number)
            case ["yours", number]:
                return self._given[_checked(number)]
            case ["standard", str(module), str(name)]:
                return self._find_in_library(module, name)
            case ["error class", number, str(module), str(name), list(bases)]:
                return self._find_error_class(number, module, name, bases)
            case ["error", kind, *parts]:
                return self._rebuild_error(self._error_class(kind), *map(self.decode, parts))
        raise ValueError("not a form")

    def news(self, *, may_forget: bool) -> Form:
        """The head of the next message: labels released, and ``[label, part, ...]`` changed.

        may_forget: whether no call is under way, on which large containers can go their own ways.
        """
        changed = self.changed()
        changes = [[label, *map(self.encode, parts)] for label, parts in changed.items()]
        self._contents |= changed
        is_too_much = sum(map(len, self._contents.values())) > _MAX_WATCHED
        released = [
            label
            for label in self._containers
            # Two references are the dictionary's and that of getrefcount's own argument.
            if (may_forget and is_too_much) or getrefcount(self._containers[label]) == 2
        ]
        for label in released:
            self._forget(label)
        return [released, changes]

    def receive(self, news: Form) -> None:
        released, changes = news
        for label, *forms in changes:
            self._refill(label, forms)
        for label in released:
            self._forget(label)

    def changed(self) -> dict[int, list[Any]]:
        """The parts of each container that are not those that the other side has."""
        changed = {}
        for label, container in self._containers.items():
            before, now = self._contents[label], _parts(container)
            if len(before) != len(now) or not all(map(is_, before, now)):
                changed[label] = now
        return changed

    def _encode_container(self, value: Any) -> Form:
        label = self._labels.get(id(value))
        if label is not None:
            return ["same", label]
        label = self._register(value)
        kind = type(value)
        arguments = list(map(self.encode, _ARGUMENTS[kind](value) if kind in _ARGUMENTS else ()))
        parts = self._contents[label] = _parts(value)
        return [kind.__name__, label, arguments, *map(self.encode, parts)]

    def _refill(self, label: int, forms: list[Form]) -> None:
        container = self._containers[label]
        parts = list(map(self.decode, forms))
        container.clear()
        _MUTABLE[type(container)][1](container, parts)
        self._contents[label] = _parts(container)

    def _register(self, value: Any) -> int:
        label = self._next_label
        self._next_label += 1
        self._labels[id(value)] = label
        self._containers[label] = value
        return label

    def _forget(self, label: int) -> None:
        del self._labels[id(self._containers.pop(label))], self._contents[label]

    def _find_in_library(self, module: str, name: str) -> Any:
        if not self._is_checker:
            return attrgetter(name)(importlib.import_module(module))
        value = vars(builtins)[name]
        if module != "builtins" or value.__module__ != "builtins" or type(value) is not type:
            raise ValueError("not for the checker")
        return value

    def _encode_error_class(self, value: type) -> Form:
        if value in self._imitated:
            return ["yours", self._imitated[value]]
        if value.__module__ == "builtins":
            return ["standard", "builtins", value.__name__]
        bases = [base for base in value.__bases__ if issubclass(base, BaseException)]
        encoded = list(map(self._encode_error_class, bases))
        number = self.give_number(value)
        return ["error class", number, value.__module__, value.__qualname__, encoded]

    def _find_error_class(self, number: Form, module: str, name: str, bases: list[Form]) -> type:
        """The library's class of this name where it is loaded here, or else an imitation."""
        if _checked(number) not in self._remotes:
            found = _find_loaded(module, name)
            if not (isinstance(found, type) and issubclass(found, BaseException)):
                decoded = tuple(map(self._error_class, bases))
                found = type(name, decoded, {"__str__": _text, "__module__": module})
                self._imitated[found] = number
            self._remotes[number] = found
        return self._remotes[number]

    def _error_class(self, form: Form) -> Any:
        error_class = self.decode(form)
        if not (issubclass(type(error_class), type) and issubclass(error_class, BaseException)):
            raise TypeError("not a class of exceptions")
        return error_class

    def _rebuild_error(
        self, kind: Any, arguments: Iterable[Any], attributes: Iterable[Any], text: str
    ) -> BaseException:
        try:
            error = kind(*arguments)
        except TypeError:  # its own arguments need not be those of its constructor
            error = kind.__new__(kind, *arguments)
        if kind in self._imitated:
            vars(error).update(attributes, **{_TEXT: text})
        return error


def _parts(container: Any) -> list[Any]:
    return list(_MUTABLE[type(container)][0](container))


def _has_no_foreign_timezone(value: Any) -> bool:
    """True if a time is naive or in a fixed offset: other time zones are somebody's code."""
    return type(getattr(value, "tzinfo", None)) in (type(None), timezone)


def _place_in_library(value: Any) -> tuple[str, str] | None:
    if not issubclass(type(value), (type, types.FunctionType, types.BuiltinFunctionType)):
        return None
    module, name = value.__module__, value.__qualname__
    return (module, name) if _find_loaded(module, name) is value else None


def _find_loaded(module: Any, name: Any) -> Any:
    """Return what has this name in a loaded module of the standard library, or None."""
    if type(module) is not str or module.partition(".")[0] not in sys.stdlib_module_names:
        return None
    try:
        return attrgetter(name)(sys.modules[module])
    except (KeyError, AttributeError):
        return None


def _checked(number: Form) -> int:
    if type(number) is not int or number < 0:
        raise ValueError("not the number of an object")
    return number


def _text(error: BaseException) -> str:
    return vars(error).get(_TEXT) or BaseException.__str__(error)
