"""The door: a server on this machine's loopback interface that speaks OpenAI's protocol, by which
programs ask agents.

A key stands for one guest, such as the program of a discussion, whose address is
``http://127.0.0.1:PORT/KEY/v1``.
"""

import asyncio
import json
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import (
    AliasChoices,
    BaseModel,
    Field,
    field_validator,
    model_validator,
)

from comas.interaction.tool_calls import first_call, name_and_arguments
from comas.types import Generation, Message
from comas.utils.chat import CALL_END, CALL_START
from comas.utils.files import errors_in_words

HOST = "127.0.0.1"
SPEAKERS = {"developer": "system", "function": "tool"}
"""Role of a message -> the role that it is read as."""


class RefusalError(Exception):
    """A request that is not answered; becomes an error of OpenAI's protocol."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class AskedMessage(BaseModel):
    """A message of a chat, with its content as one text."""

    role: Literal["system", "user", "assistant", "tool", "developer", "function"]
    content: str = ""
    tool_calls: list[tuple[str, Mapping[str, Any]]] = []
    """Name and arguments of each call."""

    @field_validator("content", mode="before")
    @classmethod
    def _as_text(cls, content: Any) -> Any:
        """Join the parts of a content that is a list. Raises ValueError if one is not a text."""
        if not isinstance(content, list):
            return content or ""
        if any(not isinstance(part, dict) or part.get("type") != "text" for part in content):
            raise ValueError("only parts of the type text are taken")
        return "\n".join(str(part.get("text", "")) for part in content)

    @field_validator("tool_calls", mode="before")
    @classmethod
    def _as_calls(cls, calls: Any) -> Any:
        """Read calls in the protocol's form. Raises ValueError."""
        return [name_and_arguments(json.dumps(call)) for call in calls or ()]

    def in_words(self) -> Message:
        """Return the message as agents read it, with tool calls in its text."""
        calls = (json.dumps({"name": n, "arguments": a}) for n, a in self.tool_calls)
        parts = [self.content, *(f"{CALL_START}{call}{CALL_END}" for call in calls)]
        return {
            "role": SPEAKERS.get(self.role, self.role),
            "content": "\n".join(part for part in parts if part),
        }


class Asked(BaseModel):
    """The body of a request for chat completions; what is not listed is ignored."""

    model: str
    messages: list[AskedMessage] = Field(min_length=1)
    n: Literal[1] = 1
    max_tokens: int | None = Field(
        None, ge=1, validation_alias=AliasChoices("max_completion_tokens", "max_tokens")
    )
    stop: list[str] = []
    seed: int | None = None
    temperature: float | None = Field(None, ge=0)
    tools: list[dict[str, Any]] = []
    tool_choice: Any = None
    stream: bool = False
    stream_options: dict[str, Any] = {}
    response_format: dict[str, Any] = {}
    metadata: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, body: Any) -> Any:
        """Replace null, which some clients send, by the field's default."""
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if value is not None}

    @field_validator("stop", mode="before")
    @classmethod
    def _listed(cls, stop: Any) -> Any:
        stops = [stop] if isinstance(stop, str) else stop or []
        return [each for each in stops if each]

    @property
    def role(self) -> str | None:
        """The role that the request names for its turn."""
        return self.metadata.get("role")

    @property
    def offered(self) -> list[dict[str, Any]]:
        """The tools that are offered to the agent."""
        return [] if self.tool_choice == "none" else self.tools

    @property
    def tool_names(self) -> list[str]:
        """The names of the offered tools."""
        return [str(tool.get("function", {}).get("name")) for tool in self.offered]


class Choice(NamedTuple):
    """One completion of a request."""

    name: str
    generation: Generation
    message: dict[str, Any]
    """The assistant's message of the protocol."""
    finish_reason: str
    """"stop", "length" or "tool_calls"."""


def choice_of(name: str, generation: Generation, asked: Asked) -> Choice:
    """Convert an answer to the protocol's form: cut before a stop sequence, and with its tool call
    taken out of the text. A call that cannot be parsed stays in the text."""
    text = generation.response_text
    text = text[: min((text.find(stop) for stop in asked.stop if stop in text), default=len(text))]
    message: dict[str, Any] = {"role": "assistant", "content": text}
    found = first_call(text, asked.tool_names) if asked.offered else None
    if found is not None:
        with suppress(ValueError):
            tool, arguments = name_and_arguments(found.text)
            function = {"name": tool, "arguments": json.dumps(arguments)}
            call = {"id": f"call_{name}", "type": "function", "function": function}
            message |= {"content": text[: found.start] or None, "tool_calls": [call]}
            return Choice(name, generation, message, "tool_calls")
    return Choice(name, generation, message, generation.finish_reason)


class Guest(Protocol):
    """Answers the requests that are made with a key."""

    @property
    def models(self) -> Sequence[str]:
        """The names that requests may give as ``model``."""
        ...

    async def complete(self, asked: Asked) -> Choice:
        """Answer a request. Raises RefusalError."""
        ...


Guests = dict[str, tuple[Guest, asyncio.AbstractEventLoop]]
"""Key -> guest, and the event loop in which to ask it."""


class Door:
    """The server, in a thread of its own; guests are asked in their own event loops."""

    def __init__(self, port: int = 0) -> None:
        """Start the server on ``port`` (0: any free one). Raises OSError if it is taken."""
        import uvicorn  # takes half a second

        self._guests: Guests = {}
        self._socket = socket.create_server((HOST, port), backlog=2048)
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}"
        application = _application(self._guests)
        server = uvicorn.Server(
            uvicorn.Config(application, lifespan="off", log_config=None, access_log=False)
        )
        serving = {"sockets": [self._socket]}
        threading.Thread(target=server.run, kwargs=serving, daemon=True, name="door").start()

    @contextmanager
    def open(self, guest: Guest, key: str | None = None) -> Iterator[str]:
        """Yield a key with which ``guest`` can be asked within the block, in the running event
        loop."""
        key = key or secrets.token_urlsafe(24)
        self._guests[key] = guest, asyncio.get_running_loop()
        try:
            yield key
        finally:
            del self._guests[key]


def overlook_closed_loops(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle errors of an event loop, except those of openai clients that a program left open in
    another thread: they are closed in whichever loop the garbage collector runs."""
    if "Event loop is closed" not in str(context.get("exception")):
        loop.default_exception_handler(context)


@cache
def the_door() -> Door:
    """Return the door of this process, which opens at the first call."""
    return Door()


def _application(guests: Guests) -> Any:
    """Return the web application, which looks up ``guests`` by their keys."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route

    async def refuse(_: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            error = RefusalError(error.status_code, "not_found", str(error.detail))
        if not isinstance(error, RefusalError):
            error = RefusalError(500, "internal_error", f"{type(error).__name__}: {error}")
        kind = "invalid_request_error" if error.status < 500 else "server_error"
        said = {"message": str(error), "type": kind, "param": None, "code": error.code}
        return JSONResponse({"error": said}, error.status)

    def guest_of(request: Request) -> tuple[Guest, asyncio.AbstractEventLoop]:
        if (key := request.path_params["key"]) not in guests:
            raise RefusalError(
                401, "invalid_api_key", "no discussion has this key; it may have ended"
            )
        return guests[key]

    async def models(request: Request) -> Response:
        fields = {"object": "model", "created": 0, "owned_by": "comas"}
        listed = [{"id": name, **fields} for name in guest_of(request)[0].models]
        return JSONResponse({"object": "list", "data": listed})

    async def complete(request: Request) -> Response:
        asyncio.get_running_loop().set_exception_handler(overlook_closed_loops)
        guest, loop = guest_of(request)
        asked = _parse(await request.body())
        if asked.model not in guest.models:
            said = f"no model {asked.model!r}; name one of {', '.join(guest.models)}"
            raise RefusalError(404, "model_not_found", said)
        asking = asyncio.run_coroutine_threadsafe(guest.complete(asked), loop)
        choice = await asyncio.wrap_future(asking)
        if asked.stream:
            return StreamingResponse(_events(asked, choice), media_type="text/event-stream")
        answer = {"index": 0, "message": choice.message, "finish_reason": choice.finish_reason}
        head = _head(asked, choice, "chat.completion")
        return JSONResponse(head | {"choices": [answer], "usage": _usage(choice)})

    return Starlette(
        routes=[
            Route("/{key}/v1/models", models),
            Route("/{key}/v1/chat/completions", complete, methods=["POST"]),
        ],
        exception_handlers=dict.fromkeys((RefusalError, HTTPException, Exception), refuse),
    )


def _parse(body: bytes) -> Asked:
    """Parse a request. Raises RefusalError if it is invalid, or asks for something unsupported."""
    try:
        asked = Asked.model_validate_json(body)
    except (ValueError, RecursionError) as error:
        said = errors_in_words(error) if isinstance(error, ValueError) else "it is nested too deep"
        raise RefusalError(400, "invalid_request_error", said) from error
    if asked.response_format.get("type", "text") != "text":
        raise RefusalError(
            400, "unsupported", "response_format is not supported; ask for the form in the prompt"
        )
    return asked


def _usage(choice: Choice) -> dict[str, int] | None:
    """Count tokens; None if only the texts of answers are known, as for served models."""
    generation = choice.generation
    prompt, response = len(generation.prompt_token_ids), len(generation.response_token_ids)
    counts = {"prompt_tokens": prompt, "completion_tokens": response}
    return counts | {"total_tokens": prompt + response} if prompt else None


def _head(asked: Asked, choice: Choice, kind: str) -> dict[str, Any]:
    made = {"object": kind, "created": int(time.time()), "model": asked.model}
    return {"id": choice.name, **made}


async def _events(asked: Asked, choice: Choice) -> AsyncIterator[str]:
    """Yield the completion as server-sent events, with the answer in one piece."""
    message = {**choice.message}
    calls = message.pop("tool_calls", [])
    # AutoGen reads no tool call in a piece that has content.
    deltas = [message, *({"tool_calls": [{"index": i} | call]} for i, call in enumerate(calls)), {}]
    chunks: list[dict[str, Any]] = []
    for delta in deltas:
        ended = None if delta else choice.finish_reason
        chunks.append({"choices": [{"index": 0, "delta": delta, "finish_reason": ended}]})
    if asked.stream_options.get("include_usage"):
        chunks.append({"choices": [], "usage": _usage(choice)})
    head = _head(asked, choice, "chat.completion.chunk")
    for chunk in chunks:
        yield f"data: {json.dumps(head | chunk)}\n\n"
    yield "data: [DONE]\n\n"
