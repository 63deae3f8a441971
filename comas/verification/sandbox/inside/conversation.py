"""Calls from one process to the other, and from there back, over two pipes.

A message is four bytes of length and then JSON:

    ["do", news, [operation, [operand, ...], {name: operand, ...}]]
    ["return" or "raise", news, value]

The news are of the containers that both sides hold (values.py).

Whoever has asked serves what the other side asks meanwhile (a callback), until the answer is
there. Nothing that arrives is trusted: at the first message that is not exactly of this form
the process ends, before any other code can catch anything.
"""

import json
import os
from _thread import RLock  # threading would make every fork of the server slower
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from .references import References
from .remote import CONVERSIONS, OPERATIONS, number_of
from .values import Form

if TYPE_CHECKING:
    from .checking import Rules

MAX_MESSAGE_BYTES = 32 << 20
MAX_DEPTH = 100
"""Callbacks within callbacks: at some six frames each, below Python's limit of recursion."""


class Conversation:
    """One side of it. Requests may be made from any thread, one at a time."""

    def __init__(self, source: int, sink: int, *, permits: "Rules | None" = None) -> None:
        """Read from the descriptor ``source``, write to ``sink``.

        permits: what the program may do to the checker; None on its own side.
        """
        self._source = open(source, "rb")  # noqa: SIM115  open for as long as the process
        self._sink = open(sink, "wb")  # noqa: SIM115
        self._permits = permits
        self._lock = RLock()
        self._depth = 0
        self._converted: dict[tuple[str, int], Any] = {}
        self.references = References(self.request, is_checker=permits is not None)

    def request(self, operation: str, *operands: Any, **named: Any) -> Any:
        """Have the other side do one of OPERATIONS; raises what that raises there."""
        with self._lock:
            if not self._permits or operation not in CONVERSIONS or self.references.changed():
                self._converted.clear()
                return self._ask(operation, operands, named)
            # Once only: an object could answer each question as suits what came of the last.
            key = (operation, number_of(operands[0]))
            if key not in self._converted:
                self._converted[key] = self._ask(operation, operands, named)
            return self._converted[key]

    def hear_outcome(self) -> Any:
        """Wait for the outcome of what the other side does unasked."""
        with self._lock:
            return self._outcome("load")

    def tell_outcome(self, value: Any) -> None:
        with self._lock:
            self._tell("return", lambda: self.references.encode(value))

    def serve(self) -> NoReturn:
        """Do what the other side asks for, until it ends."""
        while True:
            # Between requests no thread may ask: the other side would not listen.
            with self._lock, _or_end():
                kind, news, content = self._receive()
                _require(kind == "do")
            self._do(news, *content)

    def _ask(self, operation: str, operands: tuple[Any, ...], named: dict[str, Any]) -> Any:
        encode = self.references.encode
        self._tell(
            "do",
            lambda: [
                operation,
                [encode(operand) for operand in operands],
                {name: encode(operand) for name, operand in named.items()},
            ],
        )
        return self._outcome(operation)

    def _outcome(self, operation: str) -> Any:
        with _or_end():
            kind, news, content = self._receive()
            while kind == "do":
                self._do(news, *content)
                kind, news, content = self._receive()
            self.references.receive(news)
            value = self.references.decode(content)
            if kind == "raise":
                _require(issubclass(type(value), BaseException))
                _require(not self._permits or self._permits.error(operation, value))
            else:
                _require(kind == "return")
        if kind == "raise":
            raise value
        return value

    def _do(
        self, news: Form, operation: str, positional: list[Form], by_name: dict[str, Form]
    ) -> None:
        with _or_end():
            self.references.receive(news)
            kind, number = positional[0]
            _require(kind == "yours")
            target = self.references.local(number)
            operands = tuple(self.references.decode(form) for form in positional[1:])
            named = {name: self.references.decode(form) for name, form in by_name.items()}
            function = OPERATIONS[operation]
            is_permitted = not self._permits or self._permits.operation(operation, target, operands)
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise RecursionError("too many callbacks within callbacks")
            if not is_permitted:
                raise AttributeError(f"{operation} is not for the other side")
            outcome = ("return", function(target, *operands, **named))
        except BaseException as error:  # whatever it is, it is the asker's
            outcome = ("raise", error)
        self._depth -= 1
        with _or_end(), self._lock:
            self._tell(outcome[0], lambda: self.references.encode(outcome[1]))

    def _tell(self, kind: str, content: Callable[[], Form]) -> None:
        may_forget = self._permits is not None and self._depth == 0
        try:
            news = self.references.news(may_forget=may_forget)
            message = _packed([kind, news, content()])
        except BaseException:  # the asker's to deal with
            self.references.unsent()
            raise
        self._send(message)
        self.references.sent()

    def _send(self, message: bytes) -> None:
        with _or_end():
            self._sink.write(message)
            self._sink.flush()

    def _receive(self) -> list[Form]:
        length = int.from_bytes(self._read(4), "big")
        _require(length <= MAX_MESSAGE_BYTES)
        return json.loads(self._read(length).decode("ascii"))

    def _read(self, length: int) -> bytes:
        content = self._source.read(length)
        _require(len(content) == length)
        return content


def _packed(message: list[Form]) -> bytes:
    content = json.dumps(message, check_circular=False).encode("ascii")
    if len(content) > MAX_MESSAGE_BYTES:
        raise OverflowError(f"more than {MAX_MESSAGE_BYTES >> 20} MiB cannot cross at once")
    return len(content).to_bytes(4, "big") + content


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
