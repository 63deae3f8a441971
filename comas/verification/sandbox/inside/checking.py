"""The work of the two processes: the checker's asks the program's, and only data comes back."""

import builtins
import importlib
import inspect
import sys
import types
from typing import Any, NoReturn

from .conversation import Conversation
from .remote import Remote

_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)
_OF_FUNCTIONS = {"__name__", "__qualname__", "__module__", "__doc__"}
_ATTRIBUTE_OPERATIONS = {"__getattr__", "__setattr__", "__delattr__"}


def check(checker: str, *, names_may_shadow: bool, source: int, sink: int) -> object:
    """Run ``checker`` against the program at the other end; returns its ``__output__`` if it finds
    no fault. Raises what the checker raises. Ends the process if the program does not load, or
    sends anything that no honest program sends."""
    conversation = Conversation(source, sink, rules=Rules(checker))
    solution = conversation.codec.remote(0)
    bool(solution)  # is answered when the program has loaded
    sys.modules["solution"] = _Solution(solution)
    names = _Names(solution, may_shadow=names_may_shadow)
    exec(compile(checker, "<checker>", "exec", dont_inherit=True), names)
    return names.get("__output__")


def serve(program: str, *, source: int, sink: int) -> NoReturn:
    """Load ``program`` as the module ``solution``, and then do what the checker asks for."""
    conversation = Conversation(source, sink)
    solution = types.ModuleType("solution")
    sys.modules["solution"] = solution
    conversation.codec.give_number(solution)
    exec(compile(program, "<program>", "exec", dont_inherit=True), vars(solution))
    conversation.serve()


class _Names(dict[str, Any]):
    """The checker's global names, and behind them, as they are at that time, the program's.

    A name of a builtin or of a module of the standard library means just that, so that no
    program can put its own ``abs`` or ``math`` under a checker; unless ``may_shadow``, for
    checkers of a function that is itself called ``sum``.
    """

    def __init__(self, solution: Any, *, may_shadow: bool) -> None:
        super().__init__(__name__="__main__", __builtins__=builtins)
        self._solution = solution
        self._may_shadow = may_shadow

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):
            raise KeyError(name)
        if not self._may_shadow:
            if name in vars(builtins):
                raise KeyError(name)  # by which Python goes on to the builtins
            if name in sys.stdlib_module_names:
                return importlib.import_module(name)
        try:
            return getattr(self._solution, name)
        except AttributeError:
            raise KeyError(name) from None


class _Solution(types.ModuleType):
    """The program as a module. ``import *`` adds nothing: its names are there already."""

    __all__ = ()

    def __init__(self, solution: Any) -> None:
        super().__init__("solution")
        self._solution = solution

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._solution, name)


class Rules:
    """Permissions of the program, on the checker's side."""

    def __init__(self, checker: str) -> None:
        self._checker = checker

    def operation(self, operation: str, target: Any, operands: list[Any]) -> bool:
        """True if the program may do this to an object that the checker has passed to it.

        From the attributes of a function or a generator it could reach the checker's own names,
        and by a method of its own it could answer for an object. So it gets public attributes
        only, of instances of the classes that the checker defines, and changes none that is code.
        """
        if isinstance(target, _CLOSED):
            return False
        if operation not in _ATTRIBUTE_OPERATIONS:
            return True
        name = operands[0]
        if isinstance(target, _FUNCTIONS):
            return operation == "__getattr__" and name in _OF_FUNCTIONS
        owner = target if isinstance(target, type) else type(target)
        if owner.__module__ != "__main__" or type(name) is not str or name.startswith("_"):
            return False
        is_class = owner is target
        is_reading = operation == "__getattr__"
        return is_reading or not (is_class or _is_code(inspect.getattr_static(target, name, None)))

    def error(self, operation: str, error: BaseException) -> bool:
        """True if it is no exception that ends a loop or skips a test, unless it is asked for.

        The checker asks for those that it names. Others would end its ``map`` or ``all`` early.
        """
        if operation == "__next__" and isinstance(error, StopIteration):
            return True
        steering = (
            kind
            for kind in type(error).__mro__
            if kind in _STEERING or kind.__module__.partition(".")[0] == "unittest"
        )
        return all(kind.__name__ in self._checker for kind in steering)


def _is_code(value: Any) -> bool:
    """True if it is called, or found by code of its class: a function, a cached property."""
    kind = type(value)
    is_computed = hasattr(kind, "__get__") and not hasattr(kind, "__set__")
    return kind is not Remote and (callable(value) or is_computed)


_STEERING = (StopIteration, StopAsyncIteration, GeneratorExit, KeyboardInterrupt, SystemExit)
_CLOSED = (_Names, types.ModuleType, types.FrameType, types.CodeType, types.TracebackType)
