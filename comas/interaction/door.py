"""The door: a server on the loopback interface by which programs ask agents, in OpenAI's protocol.

A key stands for one guest, such as the program of a discussion. Its address is
``http://127.0.0.1:PORT/KEY/v1``, or ``http://127.0.0.1:PORT/v1`` with the key as the API key.
"""

import asyncio
import json
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import AliasChoices, BaseModel, Field, field_validator, model_validator

from comas.interaction.tool_calls import first_call, name_and_arguments
from comas.types import Generation, Message
from comas.utils.chat import CALL_END, CALL_START
from comas.utils.files import errors_in_words

HOST = "127.0.0.1"
ROLE_HEADER = "x-comas-role"
"""A request's header that names the role of its turn, as ``metadata.role`` does."""
MAX_BODY_BYTES = 8 * 2**20
MAX_IN_FLIGHT = 128
"""Requests of one key that are answered at a time; further ones get status 429."""
NEUTRAL: dict[str, Any] = dict.fromkeys(("min_p", "frequency_penalty", "presence_penalty"), (0,))
NEUTRAL |= {"top_p": (1,), "top_k": (-1, 0), "repetition_penalty": (1,), "logit_bias": ({},)}
"""Settings of sampling other than the temperature, with the values that change nothing."""
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
            return "" if content is None else content
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
    n: int = Field(1, ge=1, le=MAX_IN_FLIGHT)
    max_tokens: int | None = Field(
        None, ge=1, validation_alias=AliasChoices("max_completion_tokens", "max_tokens")
    )
    stop: list[str] = []
    seed: int | None = None
    temperature: float | None = Field(None, ge=0)
    tools: list[dict[str, Any]] = []
    tool_choice: Any = None
    """Only "none" has an effect: an agent is not forced to call a tool."""
    logprobs: bool = False
    return_token_ids: bool = False
    stream: bool = False
    stream_options: dict[str, Any] = {}
    response_format: dict[str, Any] = {}
    metadata: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, body: Any) -> Any:
        """Replace null, which some clients send, by the field's default. Raises ValueError for a
        setting of sampling, as the samples that train come from the whole distribution."""
        if not isinstance(body, dict):
            return body
        for name, neutral in NEUTRAL.items():
            if body.get(name) not in (None, *neutral):
                raise ValueError(f"{name} is not supported: leave it out, or send {neutral[0]}")
        return {name: value for name, value in body.items() if value is not None}

    @field_validator("stop", mode="before")
    @classmethod
    def _listed(cls, stop: Any) -> Any:
        stops = [stop] if isinstance(stop, str) else stop or []
        return [each for each in stops if each]

    @property
    def role(self) -> str | None:
        """The role that the request names for its turn."""
        return None if (said := self.metadata.get("role")) is None else str(said)

    @property
    def offered(self) -> list[dict[str, Any]]:
        return [] if self.tool_choice == "none" else self.tools

    @property
    def tool_names(self) -> list[str]:
        return [str(tool.get("function", {}).get("name")) for tool in self.offered]


class Choice(NamedTuple):
    """One completion of a request."""

    name: str
    generation: Generation
    message: dict[str, Any]
    """The assistant's message of the protocol."""
    finish_reason: str
    """"stop", "length" or "tool_calls"."""


def before_stop(text: str, stops: Sequence[str]) -> str:
    """Return a text up to the first stop sequence, with which an engine ends its answer."""
    return text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]


def choice_of(name: str, generation: Generation, asked: Asked) -> Choice:
    """Convert an answer to the protocol's form: cut before a stop sequence, and with its tool call
    taken out of the text. A call that cannot be parsed stays in the text."""
    text = before_stop(generation.response_text, asked.stop)
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

    async def complete(self, asked: Asked) -> list[Choice]:
        """Answer a request. Raises RefusalError."""
        ...


@dataclass
class _Entry:
    guest: Guest
    loop: asyncio.AbstractEventLoop
    num_in_flight: int = 0


class Door:
    """The server, in a thread of its own; guests are asked in their own event loops."""

    def __init__(self, port: int = 0) -> None:
        """Start the server on ``port`` (0: any free one). Raises OSError if it is taken."""
        import uvicorn  # takes half a second

        self._entries: dict[str, _Entry] = {}
        try:
            self._socket = socket.create_server((HOST, port), backlog=2048)
        except OSError as error:
            raise OSError(f"port {port} of {HOST} cannot be used: {error.strerror}") from error
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}"
        application = _application(self._entries)
        server = uvicorn.Server(
            uvicorn.Config(application, lifespan="off", log_config=None, access_log=False)
        )
        serving = {"sockets": [self._socket]}
        threading.Thread(target=server.run, kwargs=serving, daemon=True, name="door").start()

    @contextmanager
    def open(self, guest: Guest, key: str | None = None) -> Iterator[str]:
        """Yield a key with which ``guest`` is asked within the block, in the running event loop."""
        key = key or secrets.token_urlsafe(24)
        self._entries[key] = _Entry(guest, asyncio.get_running_loop())
        try:
            yield key
        finally:
            del self._entries[key]


def overlook_closed_loops(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle errors of an event loop, except those of openai clients that a program left open in
    another thread: they are closed in whichever loop the garbage collector runs."""
    if "Event loop is closed" not in str(context.get("exception")):
        loop.default_exception_handler(context)


@cache
def the_door() -> Door:
    """Return the door of this process, which opens at the first call."""
    return Door()


def _application(entries: Mapping[str, _Entry]) -> Any:
    """Return the web application, which looks up guests in ``entries`` by their keys."""
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

    def entry_of(request: Request) -> _Entry:
        said = request.path_params.get("key")
        key = said or request.headers.get("authorization", "").rpartition(" ")[2]
        if key not in entries:
            raise RefusalError(401, "invalid_api_key", "a wrong key, or its discussion has ended")
        return entries[key]

    async def models(request: Request) -> Response:
        fields = {"object": "model", "created": 0, "owned_by": "comas"}
        listed = [{"id": name, **fields} for name in entry_of(request).guest.models]
        return JSONResponse({"object": "list", "data": listed})

    async def complete(request: Request) -> Response:
        asyncio.get_running_loop().set_exception_handler(overlook_closed_loops)
        entry = entry_of(request)
        if entry.num_in_flight >= MAX_IN_FLIGHT:
            raise RefusalError(429, "too_many_requests", f"{MAX_IN_FLIGHT} are in flight already")
        entry.num_in_flight += 1
        try:
            asked = _parse(await _body(request.stream()), request.headers.get(ROLE_HEADER))
            if asked.model not in entry.guest.models:
                said = f"no model {asked.model!r}; name one of {', '.join(entry.guest.models)}"
                raise RefusalError(404, "model_not_found", said)
            asking = asyncio.run_coroutine_threadsafe(entry.guest.complete(asked), entry.loop)
            choices = await asyncio.wrap_future(asking)
            has_logprobs = bool(choices[0].generation.rollout_logprobs)
            if (asked.logprobs or asked.return_token_ids) and not has_logprobs:
                said = "log-probs and token ids are known in training only"
                raise RefusalError(400, "unsupported", said)
        finally:
            entry.num_in_flight -= 1
        if asked.stream:
            return StreamingResponse(_events(asked, choices), media_type="text/event-stream")
        return JSONResponse(_completion(asked, choices))

    return Starlette(
        routes=[
            route
            for root in ("", "/{key}")
            for route in (
                Route(f"{root}/v1/models", models),
                Route(f"{root}/v1/chat/completions", complete, methods=["POST"]),
            )
        ],
        exception_handlers=dict.fromkeys((RefusalError, HTTPException, Exception), refuse),
    )


async def _body(stream: AsyncIterator[bytes]) -> bytes:
    """Read a request's body. Raises RefusalError if it is too long."""
    body = bytearray()
    async for part in stream:
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise RefusalError(413, "too_large", f"a request has at most {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _parse(body: bytes, role: str | None) -> Asked:
    """Parse a request. Raises RefusalError if it is invalid, or asks for something unsupported."""
    try:
        asked = Asked.model_validate_json(body)
    except (ValueError, TypeError, RecursionError) as error:
        said = errors_in_words(error) if isinstance(error, ValueError) else str(error)
        raise RefusalError(400, "invalid_request_error", said) from error
    if not all(isinstance(tool.get("function"), dict) for tool in asked.tools):
        said = 'a tool has the form {"type": "function", "function": {"name": ...}}'
        raise RefusalError(400, "unsupported", said)
    if asked.response_format.get("type", "text") != "text":
        raise RefusalError(
            400, "unsupported", "response_format is not supported; ask for the form in the prompt"
        )
    if role is not None:
        asked.metadata["role"] = role
    return asked


def _usage(choices: Sequence[Choice]) -> dict[str, int]:
    prompt = len(choices[0].generation.prompt_token_ids)
    response = sum(len(choice.generation.response_token_ids) for choice in choices)
    counts = {"prompt_tokens": prompt, "completion_tokens": response}
    return counts | {"total_tokens": prompt + response}


def _head(asked: Asked, choices: Sequence[Choice], kind: str) -> dict[str, Any]:
    made = {"object": kind, "created": int(time.time()), "model": asked.model}
    return {"id": choices[0].name, **made}


def _described(choice: Choice, index: int, asked: Asked, **content: Any) -> dict[str, Any]:
    """Return a choice as JSON; log-probs name tokens ``token_id:N``, as vLLM does without texts."""
    generation = choice.generation
    ids, logprobs = list(generation.response_token_ids), generation.rollout_logprobs
    said = {"index": index, **content, "finish_reason": choice.finish_reason, "logprobs": None}
    if asked.logprobs:
        extra: dict[str, Any] = {"bytes": None, "top_logprobs": []}
        pairs = [(f"token_id:{i}", value) for i, value in zip(ids, logprobs, strict=True)]
        listed = [{"token": token, "logprob": value, **extra} for token, value in pairs]
        said["logprobs"] = {"content": listed, "refusal": None}
    return said | ({"token_ids": ids} if asked.return_token_ids else {})


def _completion(asked: Asked, choices: Sequence[Choice]) -> dict[str, Any]:
    said = [_described(each, i, asked, message=each.message) for i, each in enumerate(choices)]
    whole = _head(asked, choices, "chat.completion") | {"choices": said, "usage": _usage(choices)}
    if asked.return_token_ids:
        whole["prompt_token_ids"] = list(choices[0].generation.prompt_token_ids)
    return whole


async def _events(asked: Asked, choices: Sequence[Choice]) -> AsyncIterator[str]:
    """Yield the completion as server-sent events, each answer in one piece."""
    pieces: list[dict[str, Any]] = []
    for index, choice in enumerate(choices):
        message = {**choice.message}
        calls = message.pop("tool_calls", [])
        # AutoGen reads no tool call in a piece that has content.
        deltas = [{"tool_calls": [{"index": i} | call]} for i, call in enumerate(calls)]
        pieces.append(_described(choice, index, asked, delta=message) | {"finish_reason": None})
        pieces += [{"index": index, "delta": each, "finish_reason": None} for each in deltas]
        pieces.append({"index": index, "delta": {}, "finish_reason": choice.finish_reason})
    chunks: list[dict[str, Any]] = [{"choices": [piece]} for piece in pieces]
    if asked.stream_options.get("include_usage"):
        chunks.append({"choices": [], "usage": _usage(choices)})
    head = _head(asked, choices, "chat.completion.chunk")
    for chunk in chunks:
        yield f"data: {json.dumps(head | chunk)}\n\n"
    yield "data: [DONE]\n\n"
