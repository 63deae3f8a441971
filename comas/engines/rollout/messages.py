"""What the driver and a rollout engine tell each other, and how it crosses a connection."""

import pickle
import struct
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from typing import Any, NamedTuple

from comas.types import Generation

_LENGTH = struct.Struct("!Q")


class Request(NamedTuple):
    """One prompt to be answered, sent as one user message."""

    prompt: str
    seed: int
    """Below 2^63."""
    temperature: float | None = None
    """None: ``rollout.temperature``. At 0 the likeliest token is taken, and log-probs are those
    at temperature 1."""
    adapter: int | None = None
    """The policy whose LoRA adapter answers; None: the engine's own weights."""


class Orders(NamedTuple):
    """To the engine. Every request has a number that the driver never uses twice."""

    requests: dict[int, Request]
    cancelled: list[int]
    """Nobody waits for these any more."""


Answers = dict[int, Generation | None]
"""From the engine; None where the prompt had more than ``rollout.max_prompt_tokens``. Empty: a
sign of life."""


class Meeting(NamedTuple):
    """Where the driver waits for an engine's connection, and by what it knows the engine."""

    host: str
    port: int
    password: bytes


async def send(writer: StreamWriter, message: Any) -> None:
    """Write one message; waits while the other side is slow to read."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    writer.write(_LENGTH.pack(len(data)) + data)
    await writer.drain()


async def receive(reader: StreamReader) -> Any:
    """The next message; None when the other side has closed the connection or is gone."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return pickle.loads(await reader.readexactly(length))
    except (IncompleteReadError, ConnectionError):
        return None
