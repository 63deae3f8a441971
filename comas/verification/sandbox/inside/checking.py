"""The two processes of a run: the checker's calls the program's functions, by literals only.

A message is a line of JSON that encodes a tuple (``literals``). The checker asks for a global by
``(name,)``, or calls one by ``(name, arguments, named)``. The program answers

* ``("function",)`` or ``("missing",)`` to a name alone,
* ``("value", value, changes)``, or ``("given", position, changes)`` if the call returned one of its
  arguments; ``changes`` maps positions to the arguments that the call changed,
* ``("error", classes, arguments, changes)``: the names of the exception's classes up to the first
  builtin one,
* ``("foreign", type)`` for anything but a literal, which ends the run.

Nothing received is trusted: the first message that deviates from this form, or is too large or too
deep, ends the process before other code can catch anything.
"""

import builtins
import importlib
import json
import os
import re
import sys
import types
from _thread import allocate_lock  # importing threading would slow down every fork of the server
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from .literals import NotALiteralError, decode, encode

MAX_MESSAGE_BYTES = 32 << 20
_STEERING = (StopIteration, StopAsyncIteration)


def check(
    checker: str, *, names_may_shadow: bool, source: int, sink: int, fail: Callable[[str], NoReturn]
) -> object:
    """Run ``checker`` against the program at the other end and return its ``__output__``.

    Raises what the checker raises. Ends the process if the program does not load or sends an
    invalid message, and through ``fail`` if more than literals would have to be exchanged.
    """
    program = _Program(_Channel(source, sink), checker, fail)
    sys.modules["solution"] = _Solution(program)
    names = _Names(program, may_shadow=names_may_shadow)
    exec(compile(checker, "<checker>", "exec", dont_inherit=True), names)
    return names.get("__output__")


def serve(program: str, *, source: int, sink: int) -> NoReturn:
    """Load ``program`` as the module ``solution``, then answer the checker until it ends."""
    channel = _Channel(source, sink)
    solution = types.ModuleType("solution")
    sys.modules["solution"] = solution
    exec(compile(program, "<program>", "exec", dont_inherit=True), vars(solution))
    channel.tell(("ready",))
    while True:
        name, *call = channel.hear()
        try:
            channel.tell(_called(solution, name, *call) if call else _found(solution, name))
        except NotALiteralError as error:
            channel.tell(("foreign", str(error)))


def _found(solution: types.ModuleType, name: str) -> tuple[Any, ...]:
    try:
        value = getattr(solution, name)
    except AttributeError:
        return ("missing",)
    if callable(value) and not issubclass(type(value), type):
        return ("function",)
    return ("value", value, {})


def _called(
    solution: types.ModuleType, name: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, ...]:
    given = (*arguments, *named.values())
    before = [encode(one) for one in given]
    outcome: tuple[Any, ...]
    try:
        value = getattr(solution, name)(*arguments, **named)
        same = [i for i, one in enumerate(given) if one is value and hasattr(one, "clear")]
        outcome = ("given", same[0]) if same else ("value", value)
    except BaseException as error:  # reported to the checker, whatever it is
        kinds = type(error).__mro__
        classes = [kind.__name__ for kind in kinds if kind.__module__ != "builtins"]
        builtin = next(kind for kind in kinds if kind.__module__ == "builtins")
        content = error.args if builtin is kinds[0] else (str(error),)
        outcome = ("error", (*classes, builtin.__name__), content)
    return (*outcome, {i: one for i, one in enumerate(given) if encode(one) != before[i]})


class _Channel:
    """One end of the two pipes."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = open(source, "rb")  # noqa: SIM115  open for as long as the process
        self._sink = open(sink, "wb")  # noqa: SIM115

    def tell(self, message: tuple[Any, ...]) -> None:
        """Send a message. Raises NotALiteralError."""
        with _or_end(NotALiteralError):
            line = json.dumps(encode(message), check_circular=False).encode("ascii") + b"\n"
            _require(len(line) <= MAX_MESSAGE_BYTES)
            self._sink.write(line)
            self._sink.flush()

    def hear(self) -> tuple[Any, ...]:
        with _or_end():
            line = self._source.readline(MAX_MESSAGE_BYTES)
            _require(line.endswith(b"\n"))
            message = decode(json.loads(line.decode("ascii")))
            _require(type(message) is tuple)
            return message


class _Program:
    """The program, as seen by the checker's process."""

    def __init__(self, channel: _Channel, checker: str, fail: Callable[[str], NoReturn]) -> None:
        self._channel = channel
        self._words = frozenset(re.findall(r"\w+", checker))
        self.fail = fail
        self._lock = allocate_lock()
        self._functions: dict[str, Function] = {}
        with _or_end():
            _require(channel.hear() == ("ready",))

    def find(self, name: str) -> Any:
        """Return the value of a global, or a function to call. Raises AttributeError."""
        match ("missing",) if name.startswith("__") else self._ask(name):
            case ("function",):
                return self._functions.setdefault(name, Function(self, name))
            case ("missing",):
                raise AttributeError(f"the program has no {name!r}")
            case ("value", value, {}):
                return value
        os._exit(1)

    def call(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return or raise what the function does."""
        given = (*arguments, *named.values())
        answer = self._ask(name, arguments, named)
        with _or_end():
            for position, value in answer[-1].items():
                _change(given[position], value)
            match answer:
                case ("given", int(position), _):
                    return given[position]
                case ("value", value, _):
                    return value
                case ("error", tuple(classes), tuple(content), _):
                    error = self._error(classes, content)
                case _:
                    os._exit(1)
        raise error

    def _ask(self, *request: Any) -> tuple[Any, ...]:
        with self._lock:
            try:
                self._channel.tell(request)
            except NotALiteralError as error:
                self.fail(f"the checker passes the program a value of type {_shown(error.args[0])}")
            answer = self._channel.hear()
        if answer[:1] == ("foreign",):
            self.fail(f"the program gives its checker a value of type {_shown(answer[-1])}")
        return answer

    def _error(self, classes: tuple[Any, ...], content: tuple[Any, ...]) -> Exception:
        """Rebuild an exception as its builtin class. Ends the process for classes that would end
        the checker's loops or skip its tests."""
        kind = vars(builtins)[classes[-1]]
        _require(issubclass(kind, BaseException))
        is_steering = not issubclass(kind, Exception) or issubclass(kind, _STEERING)
        for name in classes if is_steering else classes[:-1]:
            if name in self._words:
                self.fail(f"the checker expects the program to raise {_shown(name)}")
        _require(not is_steering)
        return kind(*content)


class Function:
    """A function of the program, which can only be called."""

    def __init__(self, program: _Program, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__program = program

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        return self.__program.call(self.__name__, arguments, named)

    def __getattr__(self, name: str) -> NoReturn:
        self.__program.fail(f"the checker reads {_shown(name)} of a function of the program")


class _Names(dict[str, Any]):
    """The checker's globals, falling back to the program's current ones.

    Builtins and standard modules come before the program's names, so that no program can replace a
    checker's ``abs`` or ``math``; unless ``may_shadow``, for checkers of a function called ``sum``.
    """

    def __init__(self, program: _Program, *, may_shadow: bool) -> None:
        super().__init__(__name__="__main__", __builtins__=builtins)
        self._program = program
        self._may_shadow = may_shadow

    def __missing__(self, name: str) -> Any:
        if not self._may_shadow:
            if name in vars(builtins):
                raise KeyError(name)  # Python then looks among the builtins
            if name in sys.stdlib_module_names:
                return importlib.import_module(name)
        try:
            return self._program.find(name)
        except AttributeError:
            raise KeyError(name) from None


class _Solution(types.ModuleType):
    """The program as a module. ``import *`` adds nothing, since its names are globals already."""

    __all__ = ()

    def __init__(self, program: _Program) -> None:
        super().__init__("solution")
        self._program = program

    def __getattr__(self, name: str) -> Any:
        return self._program.find(name)


def _change(container: Any, content: Any) -> None:
    """Make a container of the checker hold what the program left in its copy."""
    _require(type(container) is type(content))
    if type(container) is tuple:
        for pair in zip(container, content, strict=True):
            _change(*pair)
    elif hasattr(container, "clear"):
        container.clear()
        (container.extend if hasattr(container, "extend") else container.update)(content)


def _shown(name: Any) -> str:
    """Make a name printable, which the program may have chosen."""
    is_name = type(name) is str and name.isascii() and name.isidentifier() and len(name) < 40
    return name if is_name else "(unreadable)"


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("not a message")


@contextmanager
def _or_end(*passed: type[BaseException]) -> Iterator[None]:
    """End the process on any other exception, so that no code can catch it and continue."""
    try:
        yield
    except passed:
        raise
    except BaseException:
        os._exit(1)
