"""How values cross between the checker and the program: as JSON, and never as code.

| value | its form |
|---|---|
| None, bool, float, str, an int of up to 64 bits | itself |
| a longer int | ``["int", "0x1fff..."]`` |
| tuple, frozenset, bytes, complex, range, date, ... | ``["tuple", 1, 2]`` |
| list, dict, set, ... | ``["list", label, [], 1, 2]``; met again: ``["same", label]`` |
| anything else | by reference, see references.py |

Types are exact: what is of a subclass goes by reference, for its methods are its owner's code.

A mutable container has a label, its number in the order of crossing. As long as both sides hold
it, each message says first what its sender has changed in it, so that the two copies are as one.
Who alone holds it then says so, and both forget its label.

A form is not trusted. Decoding raises some exception (which, is left open) for whatever was
not encoded here, and runs none of the sender's code.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from operator import is_
from sys import getrefcount
from typing import Any

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
_MAX_WATCHED = 2000
"""Parts of all containers that both sides hold, which each message costs a look at."""


class Codec:
    """Values to forms and back, and the containers that cross, the same on both sides.

    Both sides see the same containers in the same order, and so give them the same labels.
    """

    def __init__(self) -> None:
        self._containers: dict[int, Any] = {}
        self._labels: dict[int, int] = {}  # by id; _containers keeps the object alive
        self._contents: dict[int, list[Any]] = {}
        """The parts of each, when last both sides had the same."""
        self._released: list[int] = []
        self._changed: dict[int, list[Any]] = {}
        self._next_label = self._first_label = 0

    def news(self, *, may_forget: bool) -> Form:
        """The head of the next message: labels released, and ``[label, part, ...]`` changed.

        may_forget: whether no call is under way, on which large containers can go their own ways.

        The message holds the values that are encoded after this; ``sent`` or ``unsent`` follows.

        Raises RecursionError where something is nested too deeply.
        """
        self._first_label = self._next_label
        self._changed = self.changed() if self._containers else {}
        changes = [[label, *map(self.encode, parts)] for label, parts in self._changed.items()]
        self._release(may_forget=may_forget)
        return [self._released, changes]

    def sent(self) -> None:
        """The other side has the message."""
        self._contents.update(
            (label, self._changed[label]) for label in self._changed.keys() & self._contents
        )
        self._released = []

    def unsent(self) -> None:
        """There will be no such message."""
        for label in range(self._first_label, self._next_label):
            self._forget(label)
        self._next_label = self._first_label

    def receive(self, news: Form) -> None:
        """Take what the other side has changed and released."""
        released, changes = news
        for label, *forms in changes:
            self._refill(label, forms)
        for label in released:
            self._forget(label)

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
        return self.encode_reference(value)

    def decode(self, form: Form) -> Any:
        if type(form) is not list:
            if type(form) is dict:
                raise ValueError("not a form")
            return form
        name = form[0]
        if name in _MUTABLE_BY_NAME:
            return self._decode_container(form)
        if name in _IMMUTABLE_BY_NAME:
            return _IMMUTABLE_BY_NAME[name](*map(self.decode, form[1:]))
        if name == "same":
            return self._containers[form[1]]
        if name == "int":
            return int(form[1], 16)
        return self.decode_reference(form)

    def encode_reference(self, value: Any) -> Form:
        """The form of what does not cross itself (references.py)."""
        raise NotImplementedError

    def decode_reference(self, form: list[Form]) -> Any:
        """Return the object that such a form stands for."""
        raise NotImplementedError

    def changed(self) -> dict[int, list[Any]]:
        """The parts of each container that are not those that the other side has."""
        changed = {}
        for label, container in self._containers.items():
            before, now = self._contents[label], _parts(container)
            if len(before) != len(now) or not all(map(is_, before, now)):
                changed[label] = now
        return changed

    def _release(self, *, may_forget: bool) -> None:
        """Forget containers that nobody else holds here, and all of them if they are too large.

        may_forget: see ``news``.
        """
        is_too_much = sum(map(len, self._contents.values())) > _MAX_WATCHED
        for label in list(self._containers):
            # Two references are the dictionary's and that of getrefcount's own argument.
            if (may_forget and is_too_much) or getrefcount(self._containers[label]) == 2:
                self._forget(label)
                self._released.append(label)

    def _encode_container(self, value: Any) -> Form:
        label = self._labels.get(id(value))
        if label is not None:
            return ["same", label]
        label = self._register(value)
        kind = type(value)
        arguments = list(map(self.encode, _ARGUMENTS[kind](value) if kind in _ARGUMENTS else ()))
        parts = self._contents[label] = _parts(value)
        return [kind.__name__, label, arguments, *map(self.encode, parts)]

    def _decode_container(self, form: list[Form]) -> Any:
        name, label, arguments, *parts = form
        value = _MUTABLE_BY_NAME[name](*map(self.decode, arguments))
        if label != self._register(value):
            raise ValueError("labels out of order")
        self._refill(label, parts)
        return value

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
        if label in self._containers:
            del self._labels[id(self._containers.pop(label))], self._contents[label]


def _parts(container: Any) -> list[Any]:
    return list(_MUTABLE[type(container)][0](container))


def plain(value: Any) -> Any:
    """The content of ``value`` as an instance of a builtin type; None where it is none.

    It equals what that type says, and not what its own class may make of it. A view of a
    dictionary is a set.
    """
    for kind, content in _PLAIN.items():
        if issubclass(type(value), kind):
            return content(value)
    return None


def _has_no_foreign_timezone(value: Any) -> bool:
    """True if a time is naive or in a fixed offset: other time zones are somebody's code."""
    return type(getattr(value, "tzinfo", None)) in (type(None), timezone)
