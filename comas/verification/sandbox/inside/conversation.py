"""Calls from one process to the other, and from there back, over two pipes.

A message is four bytes of length and then JSON:

    ["do", operation, [operand, ...], {name: operand, ...}]
    ["return" or "raise", [change, ...], value]

Whoever has asked serves what the other side asks meanwhile (a callback), until the answer is
there. Nothing that arrives is trusted: at the first message that is not exactly of this form
the process ends, before any other code can catch anything.
"""

import json
import os
from _thread import RLock  # threading would make every fork of the server slower
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from .references import References
from .remote import OPERATIONS
from .values import Codec, Form

MAX_MESSAGE_BYTES = 32 << 20
MAX_DEPTH = 100
"""Callbacks within callbacks: at some six frames each, below Python's limit of recursion."""

Permits = Callable[[str, Any, tuple[Any, ...]], bool]
"""(operation, object, further operands) -> whether the other side may ask for it."""


class Conversation:
    """One side of it. Requests may be made from any thread, one at a time."""

    def __init__(self, source: int, sink: int, *, permits: Permits | None = None) -> None:
        """Read from the descriptor ``source``, write to ``sink``.

        permits: what the program may do with what the checker gives it; None on its own side.
        """
        self._source = open(source, "rb")  # noqa: SIM115  open for as long as the process
        self._sink = open(sink, "wb")  # noqa: SIM115
        self._permits = permits
        self._lock = RLock()
        self._depth = 0
        self.references = References(self.request, of_checker=permits is not None)

    def request(self, operation: str, *operands: Any, **named: Any) -> Any:
        """Have the other side do one of OPERATIONS; raises what that raises there."""
        with self._lock:
            codec = Codec(self.references)
            positional = [codec.encode(operand) for operand in operands]
            by_name = {name: codec.encode(operand) for name, operand in named.items()}
            self._send(_packed(["do", operation, positional, by_name]))
            return self._outcome(codec)

    def hear_outcome(self) -> Any:
        """Wait for the outcome of what the other side does unasked."""
        with self._lock:
            return self._outcome(Codec(self.references))

    def tell_outcome(self, value: Any) -> None:
        with self._lock:
            self._send(_packed(["return", [], Codec(self.references).encode(value)]))

    def serve(self) -> NoReturn:
        """Do what the other side asks for, until it ends."""
        while True:
            # Between requests no thread may ask: the other side would not listen.
            with self._lock, _or_end():
                kind, *request = self._receive()
                _require(kind == "do")
            self._do(*request)

    def _outcome(self, codec: Codec) -> Any:
        with _or_end():
            kind, *content = self._receive()
            while kind == "do":
                self._do(*content)
                kind, *content = self._receive()
            changes, form = content
            codec.apply(changes)
            value = codec.decode(form)
            _require(kind == "return" or (kind == "raise" and isinstance(value, BaseException)))
        if kind == "raise":
            raise value
        return value

    def _do(self, operation: str, positional: list[Form], by_name: dict[str, Form]) -> None:
        with _or_end():
            codec = Codec(self.references)
            kind, number = positional[0]
            _require(kind == "yours")
            target = self.references.own(number)
            operands = tuple(codec.decode(form) for form in positional[1:])
            named = {name: codec.decode(form) for name, form in by_name.items()}
            snapshot = codec.snapshot()
            function = OPERATIONS[operation]
            is_permitted = not self._permits or self._permits(operation, target, operands)
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
            changes = codec.changes(snapshot)
            self._send(_packed([outcome[0], changes, codec.encode(outcome[1])]))

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
