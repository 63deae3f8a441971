"""References to the other side: objects, functions and classes, and with care exceptions.

An object that does not cross itself stays with its owner; the other side gets a ``Remote`` for
it, always the same one, and the owner gets its own object back. Exceptions are copied, for
``raise`` and ``except`` take nothing else, and a class of exceptions is imitated by one of the
same name and bases.

Functions and classes of the standard library cross by name, as they are on either side. The
checker takes none but classes of ``builtins`` and of exceptions.
"""

import builtins
import importlib
import sys
import types
from collections import namedtuple
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from .remote import Remote, number_of
from .values import Codec, Form

_TEXT = "_text_of_the_original"


class References(Codec):
    """The objects of this side that the other side knows of, and its objects known here."""

    def __init__(self, request: Callable[..., Any], *, is_checker: bool) -> None:
        """``request``: see ``Remote``. ``is_checker``: whose side this is."""
        super().__init__()
        self._request = request
        self._is_checker = is_checker
        self._own: list[Any] = []
        self._own_ids: dict[int, int] = {}  # by id(); _own keeps the object alive
        self._remotes: dict[int, Any] = {}
        self._remote_errors: dict[type, int] = {}
        self._tuple_classes: dict[tuple[str, ...], type] = {}

    def local(self, number: Form) -> Any:
        """The object of this side that the other side calls by ``number``."""
        return self._own[_checked(number)]

    def give_number(self, value: Any) -> int:
        """The number by which the other side may call ``value``: the first is 0."""
        number = self._own_ids.setdefault(id(value), len(self._own))
        if number == len(self._own):
            self._own.append(value)
        return number

    def remote(self, number: Form) -> Any:
        """The other side's object of this number."""
        if _checked(number) not in self._remotes:
            self._remotes[number] = Remote(self._request, number)
        return self._remotes[number]

    def encode_reference(self, value: Any) -> Form:
        kind = type(value)
        if kind is Remote:
            return ["yours", number_of(value)]
        if (place := _place_in_library(value)) and (self._is_checker or place[0] == "builtins"):
            return ["standard", *place]
        if issubclass(kind, type) and issubclass(value, BaseException):
            return self._encode_error_class(value)
        if issubclass(kind, BaseException):
            return self._encode_error(value)
        if issubclass(kind, tuple) and isinstance(fields := getattr(kind, "_fields", 0), tuple):
            return ["namedtuple", kind.__name__, list(fields), *map(self.encode, value)]
        return ["mine", self.give_number(value)]

    def decode_reference(self, form: list[Form]) -> Any:
        match form:
            case ["mine", number]:
                return self.remote(number)
            case ["yours", number]:
                return self.local(number)
            case ["standard", str(module), str(name)]:
                return self._find_in_library(module, name)
            case ["error class", number, str(module), str(name), list(bases)]:
                return self._find_error_class(number, module, name, bases)
            case ["error", kind, list(arguments), list(attributes), str(text)]:
                return self._rebuild_error(kind, arguments, attributes, text)
            case ["namedtuple", str(name), list(fields), *items]:
                return self._tuple_class(name, fields)(*map(self.decode, items))
        raise ValueError("not a form")

    def _find_in_library(self, module: str, name: str) -> Any:
        if self._is_checker:
            value = vars(builtins)[name]
            if module != "builtins" or value.__module__ != "builtins" or type(value) is not type:
                raise ValueError("not for the checker")
            return value
        return attrgetter(name)(importlib.import_module(module))

    def _encode_error_class(self, value: type) -> Form:
        if value in self._remote_errors:
            return ["yours", self._remote_errors[value]]
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
                self._remote_errors[found] = number
            self._remotes[number] = found
        return self._remotes[number]

    def _encode_error(self, error: BaseException) -> Form:
        encode = self.encode
        attributes = [[n, encode(v)] for n, v in vars(error).items() if not n.startswith("_")]
        arguments = list(map(encode, error.args))
        kind = self._encode_error_class(type(error))
        return ["error", kind, arguments, attributes, str(error)]

    def _rebuild_error(
        self, kind: Form, arguments: list[Form], attributes: list[Form], text: str
    ) -> BaseException:
        named = [(name, self.decode(value)) for name, value in attributes]
        values = list(map(self.decode, arguments))
        error_class = self._error_class(kind)
        try:
            error = error_class(*values)
        except TypeError:  # its own arguments need not be those of its constructor
            error = error_class.__new__(error_class, *values)
        if error_class in self._remote_errors:
            vars(error).update(dict(named), **{_TEXT: text})
        return error

    def _error_class(self, form: Form) -> Any:
        error_class = self.decode(form)
        if not (issubclass(type(error_class), type) and issubclass(error_class, BaseException)):
            raise TypeError("not a class of exceptions")
        return error_class

    def _tuple_class(self, name: str, fields: list[str]) -> type:
        key = (name, *fields)
        if key not in self._tuple_classes:
            self._tuple_classes[key] = namedtuple(name, fields)  # type: ignore[misc]
        return self._tuple_classes[key]


def _place_in_library(value: Any) -> tuple[str, str] | None:
    """Module and name of a function or class of the standard library."""
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
    """``str`` of an exception whose class is the other side's."""
    return vars(error).get(_TEXT) or BaseException.__str__(error)
