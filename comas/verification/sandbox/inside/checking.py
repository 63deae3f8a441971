"""The checker's process: it asks the program's process, and what comes back is only data."""

import builtins
import importlib
import sys
import types
from typing import Any

from .conversation import Conversation

_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)
_OF_FUNCTIONS = {"__name__", "__qualname__", "__module__", "__doc__"}
_ATTRIBUTE_OPERATIONS = {"__getattr__", "__setattr__", "__delattr__"}


def check(checker: str, *, names_may_shadow: bool, source: int, sink: int) -> None:
    """Run ``checker`` against the program at the other end; returns if it finds no fault.

    Raises what the checker raises. Ends the process if the program does not load, or sends
    anything that no honest program sends.

    names_may_shadow: see ``_Names``.
    """
    conversation = Conversation(source, sink, permits=_permits)
    conversation.hear_outcome()  # of loading the program
    solution = conversation.references.remote(0)
    sys.modules["solution"] = _Solution(solution)
    exec(
        compile(checker, "<checker>", "exec", dont_inherit=True),
        _Names(solution, may_shadow=names_may_shadow),
    )


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


def _permits(operation: str, target: Any, operands: tuple[Any, ...]) -> bool:
    """Whether the program may do this to an object that the checker has passed to it.

    From the attributes of a function or a generator it could reach the checker's own names.
    So it gets public attributes only, of instances of the classes that the checker defines.
    """
    if isinstance(target, _CLOSED):
        return False
    if operation not in _ATTRIBUTE_OPERATIONS:
        return True
    name = operands[0]
    if isinstance(target, _FUNCTIONS):
        return operation == "__getattr__" and name in _OF_FUNCTIONS
    is_class = isinstance(target, type)
    if is_class and operation != "__getattr__":
        return False
    owner = target if is_class else type(target)
    return owner.__module__ == "__main__" and type(name) is str and not name.startswith("_")


_CLOSED = (_Names, types.ModuleType, types.FrameType, types.CodeType, types.TracebackType)
