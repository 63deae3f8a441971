"""Calls from one process to the other, and from there back, over two pipes.

A message is four bytes of length and then JSON, ``[kind, news, form]``: of the kind "do" with the
form of ``(operation, (target, operand, ...), ((name, operand), ...))``, or "return" or "raise" with
that of a value. The news are of the containers that both sides hold (values.py).

Whoever has asked serves what the other side asks meanwhile (a callback), until the answer is
there. Nothing that arrives is trusted: at the first message that is not exactly of this form
the process ends, before any other code can catch anything. So it does where a value is too large
or too deep to cross.
"""

import json
import os
from _thread import RLock  # threading would make every fork of the server slower
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from .remote import CONVERSIONS, OPERATIONS, number_of
from .values import Codec

if TYPE_CHECKING:
    from .checking import Rules

MAX_MESSAGE_BYTES = 32 << 20
MAX_DEPTH = 100
"""Callbacks within callbacks: at some six frames each, below Python's limit of recursion."""


class Conversation:
    """One side of it. Requests may be made from any thread, one at a time."""

    def __init__(self, source: int, sink: int, *, rules: "Rules | None" = None) -> None:
        """rules: what the program may do to the checker; None on its own side."""
        self._source = open(source, "rb")  # noqa: SIM115  open for as long as the process
        self._sink = open(sink, "wb")  # noqa: SIM115
        self._rules = rules
        self._lock = RLock()
        self._depth = 0
        self._converted: dict[tuple[str, int], Any] = {}
        self.codec = Codec(self.request, is_checker=rules is not None)

    def request(self, operation: str, *operands: Any, **named: Any) -> Any:
        """Have the other side do one of OPERATIONS; raises what that raises there."""
        with self._lock:
            if not self._rules or operation not in CONVERSIONS or self.codec.changed():
                self._converted.clear()
                return self._ask(operation, operands, named)
            # Once only: an object could answer each question as suits what came of the last.
            key = (operation, number_of(operands[0]))
            if key not in self._converted:
                self._converted[key] = self._ask(operation, operands, named)
            return self._converted[key]

    def serve(self) -> NoReturn:
        """Do what the other side asks for, until it ends."""
        while True:
            # Between requests no thread may ask: the other side would not listen.
            with self._lock, _or_end():
                kind, request = self._hear()
                _require(kind == "do")
            self._do(request)

    def _ask(self, operation: str, operands: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self._tell("do", (operation, operands, tuple(named.items())))
        kind, value = self._hear()
        while kind == "do":
            self._do(value)
            kind, value = self._hear()
        with _or_end():
            if kind == "raise":
                _require(issubclass(type(value), BaseException))
                _require(not self._rules or self._rules.error(operation, value))
            else:
                _require(kind == "return")
        if kind == "raise":
            raise value
        return value

    def _do(self, request: Any) -> None:
        with _or_end():
            operation, (target, *operands), named = request
            _require(self.codec.has_given(target))
            function = OPERATIONS[operation]
            is_permitted = not self._rules or self._rules.operation(operation, target, operands)
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise RecursionError("too many callbacks within callbacks")
            if not is_permitted:
                raise AttributeError(f"{operation} is not for the other side")
            outcome = ("return", function(target, *operands, **dict(named)))
        except BaseException as error:  # whatever it is, it is the asker's
            outcome = ("raise", error)
        self._depth -= 1
        with self._lock:
            self._tell(*outcome)

    def _tell(self, kind: str, value: Any) -> None:
        with _or_end():
            news = self.codec.news(may_forget=self._rules is not None and self._depth == 0)
            message = json.dumps([kind, news, self.codec.encode(value)], check_circular=False)
            _require(len(message) <= MAX_MESSAGE_BYTES)
            self._sink.write(len(message).to_bytes(4, "big") + message.encode("ascii"))
            self._sink.flush()

    def _hear(self) -> tuple[str, Any]:
        with _or_end():
            length = int.from_bytes(self._read(4), "big")
            _require(length <= MAX_MESSAGE_BYTES)
            kind, news, form = json.loads(self._read(length).decode("ascii"))
            self.codec.receive(news)
            return kind, self.codec.decode(form)

    def _read(self, length: int) -> bytes:
        content = self._source.read(length)
        _require(len(content) == length)
        return content


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("not a message")


@contextmanager
def _or_end() -> Iterator[None]:
    """End the process at any exception: nobody may catch it and go on."""
    try:
        yield
    except BaseException:
        os._exit(1)
