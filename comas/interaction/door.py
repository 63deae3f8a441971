"""The door: a server on this machine's loopback interface that speaks OpenAI's protocol, by which
programs ask agents.

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
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol

from pydantic import (
    AliasChoices,
    BaseModel,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from comas.interaction.tool_calls import Call, first_call, name_and_arguments
from comas.types import Generation, Message
from comas.utils.chat import CALL_END, CALL_START
from comas.utils.files import errors_in_words

HOST = "127.0.0.1"
ROLE_HEADER = "x-comas-role"
"""A request's header that names the role of its turn, as ``metadata.role`` does."""
MAX_BODY_BYTES = 8 * 2**20
MAX_IN_FLIGHT = 64
"""Requests of one key that are answered at a time; further ones get status 429."""
SPEAKERS = {"developer": "system", "function": "tool"}
"""Names of a message's role that stand for another."""


class RefusalError(Exception):
    """A request that is not answered; becomes an error of OpenAI's protocol."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class AskedMessage(BaseModel):
    """A message of a chat, with its content as one text."""

    role: Literal["system", "user", "assistant", "tool", "developer", "function"]
    content: str = ""
    tool_calls: list[dict[str, Any]] | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _as_text(cls, content: Any) -> Any:
        """Join the parts of a content that is a list. Raises ValueError for other than text."""
        if not isinstance(content, list):
            return content or ""
        if any(not isinstance(part, dict) or part.get("type") != "text" for part in content):
            raise ValueError("only parts of the type text are taken")
        return "\n".join(str(part.get("text", "")) for part in content)

    @property
    def calls(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Name and arguments of each tool call."""
        return [name_and_arguments(json.dumps(call)) for call in self.tool_calls or ()]

    def in_words(self) -> Message:
        """The message as agents read it: tool calls stand in the text, as agents write them."""
        calls = (json.dumps({"name": n, "arguments": a}) for n, a in self.calls)
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
    logprobs: bool = False
    return_token_ids: bool = False
    stream: bool = False
    stream_options: dict[str, Any] = {}
    response_format: dict[str, Any] = {}
    metadata: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, body: Any) -> Any:
        """Let null stand for a field's default, as clients send it."""
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
        """The tools that the agent is told of."""
        return [] if self.tool_choice == "none" else self.tools


@dataclass(frozen=True)
class Choice:
    """One completion of a request."""

    name: str
    generation: Generation
    text: str
    """Without what follows a stop sequence, and without the tool call."""
    call: tuple[str, Mapping[str, Any]] | None
    """The name and arguments of the tool that it calls; None: it calls none."""

    @property
    def message(self) -> dict[str, Any]:
        """The assistant's message of the protocol."""
        said: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.call is not None:
            function = {"name": self.call[0], "arguments": json.dumps(self.call[1])}
            said["content"] = self.text or None
            call = {"id": f"call_{self.name}", "type": "function", "function": function}
            said["tool_calls"] = [call]
        return said

    @property
    def finish_reason(self) -> str:
        """Why it ends: "stop", "length" or "tool_calls"."""
        return self.generation.finish_reason if self.call is None else "tool_calls"


def choice_of(name: str, generation: Generation, asked: Asked) -> Choice:
    """Read an answer as the protocol wants it. A call that cannot be read stays text."""
    text = generation.response_text
    text = text[: min((text.find(stop) for stop in asked.stop if stop in text), default=len(text))]
    names = [str(tool.get("function", {}).get("name")) for tool in asked.offered]
    found: Call | None = first_call(text, names) if names else None
    if found is not None:
        try:
            return Choice(name, generation, text[: found.start], name_and_arguments(found.text))
        except ValueError:
            pass
    return Choice(name, generation, text, None)


class Guest(Protocol):
    """Whom a key stands for."""

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
        """Start it on ``port`` (0: any that is free). Raises OSError where it is taken."""
        import uvicorn  # takes half a second

        self._entries: dict[str, _Entry] = {}
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((HOST, port))
        self._socket.listen(2048)
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}"
        application = _application(self._entries)
        server = uvicorn.Server(
            uvicorn.Config(application, lifespan="off", log_config=None, access_log=False)
        )
        serving = {"sockets": [self._socket]}
        threading.Thread(target=server.run, kwargs=serving, daemon=True, name="door").start()

    @contextmanager
    def open(self, guest: Guest, key: str | None = None) -> Iterator[str]:
        """Let ``guest`` be asked, in the running event loop, by whoever has the key, which the
        block is given; afterwards requests with it are refused."""
        key = key or secrets.token_urlsafe(24)
        self._entries[key] = _Entry(guest, asyncio.get_running_loop())
        try:
            yield key
        finally:
            del self._entries[key]


def overlook_closed_loops(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle errors of an event loop, but for those of clients that a program in another thread
    left open: openai's close themselves in whichever loop collects them."""
    if "Event loop is closed" not in str(context.get("exception")):
        loop.default_exception_handler(context)


@cache
def the_door() -> Door:
    """Return the door of this process, which opens at the first call."""
    return Door()


def _application(entries: Mapping[str, _Entry]) -> Any:
    """The web application, which looks up guests in ``entries`` by their keys."""
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse, Response, StreamingResponse
    from starlette.exceptions import HTTPException

    app = FastAPI(openapi_url=None)

    async def refuse(_: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            error = RefusalError(error.status_code, "not_found", str(error.detail))
        if not isinstance(error, RefusalError):
            error = RefusalError(500, "internal_error", f"{type(error).__name__}: {error}")
        return JSONResponse(_error(error), error.status)

    for kind in (RefusalError, HTTPException, Exception):
        app.add_exception_handler(kind, refuse)

    def entry_of(request: Request) -> _Entry:
        said = request.path_params.get("key")
        key = said or request.headers.get("authorization", "").removeprefix("Bearer ")
        if key not in entries:
            raise RefusalError(
                401, "invalid_api_key", "no discussion has this key; it may have ended"
            )
        return entries[key]

    async def models(request: Request) -> dict[str, Any]:
        names = entry_of(request).guest.models
        fields = {"object": "model", "created": 0, "owned_by": "comas"}
        return {"object": "list", "data": [{"id": name, **fields} for name in names]}

    async def complete(request: Request) -> Response:
        asyncio.get_running_loop().set_exception_handler(overlook_closed_loops)
        entry = entry_of(request)
        if entry.num_in_flight >= MAX_IN_FLIGHT:
            raise RefusalError(429, "too_many_requests", f"{MAX_IN_FLIGHT} are in flight already")
        entry.num_in_flight += 1
        try:
            asked = _parse(await _body(request.stream()), request.headers.get(ROLE_HEADER))
            if asked.model not in entry.guest.models:
                known = ", ".join(entry.guest.models)
                said = f"no model {asked.model!r}; name one of {known}"
                raise RefusalError(404, "model_not_found", said)
            asking = asyncio.run_coroutine_threadsafe(entry.guest.complete(asked), entry.loop)
            choices = await asyncio.wrap_future(asking)
        finally:
            entry.num_in_flight -= 1
        if asked.stream:
            return StreamingResponse(_events(asked, choices), media_type="text/event-stream")
        return JSONResponse(_completion(asked, choices))

    for root in ("", "/{key}"):
        app.get(f"{root}/v1/models")(models)
        app.post(f"{root}/v1/chat/completions", response_model=None)(complete)
    return app


async def _body(stream: AsyncIterator[bytes]) -> bytes:
    """Read a request's body. Raises RefusalError where it is too long."""
    body = bytearray()
    async for part in stream:
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise RefusalError(413, "too_large", f"a request has at most {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _parse(body: bytes, role: str | None) -> Asked:
    """Read a request. Raises RefusalError where it is none, or asks for what there is not."""
    try:
        asked = Asked.model_validate_json(body)
        _ = [message.calls for message in asked.messages]
    except (ValidationError, ValueError, RecursionError) as error:
        said = errors_in_words(error) if isinstance(error, ValueError) else "it is nested too deep"
        raise RefusalError(400, "invalid_request_error", said) from error
    if asked.response_format.get("type", "text") != "text":
        raise RefusalError(
            400, "unsupported", "response_format is not supported; ask for the form in the prompt"
        )
    if role is not None:
        asked.metadata["role"] = role
    return asked


def _error(error: RefusalError) -> dict[str, Any]:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "param": None, "code": error.code}}


def _usage(choices: Sequence[Choice]) -> dict[str, int] | None:
    """Count tokens; None if only the texts of answers are known, as of models that are served."""
    prompt = len(choices[0].generation.prompt_token_ids)
    response = sum(len(choice.generation.response_token_ids) for choice in choices)
    if not prompt:
        return None
    return {
        "prompt_tokens": prompt,
        "completion_tokens": response,
        "total_tokens": prompt + response,
    }


def _head(asked: Asked, choices: Sequence[Choice], kind: str) -> dict[str, Any]:
    return {
        "id": choices[0].name,
        "object": kind,
        "created": int(time.time()),
        "model": asked.model,
    }


def _logprobs(choice: Choice) -> dict[str, Any]:
    """Log-probs by token, which is spelt ``token_id:N``, as vLLM does where it has no text."""
    said = choice.generation
    pairs = zip(said.response_token_ids, said.rollout_logprobs, strict=True)
    extra: dict[str, Any] = {"bytes": None, "top_logprobs": []}
    return {
        "content": [{"token": f"token_id:{i}", "logprob": value, **extra} for i, value in pairs],
        "refusal": None,
    }


def _described(choice: Choice, index: int, asked: Asked, **content: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"index": index, **content, "finish_reason": choice.finish_reason}
    said["logprobs"] = _logprobs(choice) if asked.logprobs else None
    if asked.return_token_ids:
        said["token_ids"] = list(choice.generation.response_token_ids)
    return said


def _completion(asked: Asked, choices: Sequence[Choice]) -> dict[str, Any]:
    said = [_described(each, i, asked, message=each.message) for i, each in enumerate(choices)]
    usage = _usage(choices)
    whole = _head(asked, choices, "chat.completion") | {"choices": said, "usage": usage}
    if asked.return_token_ids:
        whole["prompt_token_ids"] = list(choices[0].generation.prompt_token_ids)
    return whole


async def _events(asked: Asked, choices: Sequence[Choice]) -> AsyncIterator[str]:
    """The completion as server-sent events, each answer in one piece: it is whole when it comes."""
    head = _head(asked, choices, "chat.completion.chunk")
    for index, choice in enumerate(choices):
        message = choice.message
        calls = message.pop("tool_calls", [])
        said = _described(choice, index, asked, delta=message)
        deltas = [{"tool_calls": [{"index": i, **call}]} for i, call in enumerate(calls)]
        for each in [said, *({"index": index, "delta": delta} for delta in deltas)]:
            # AutoGen reads no tool call in a piece that has content.
            yield _event(head | {"choices": [{**each, "finish_reason": None}]})
        end = {"index": index, "delta": {}, "finish_reason": choice.finish_reason}
        yield _event(head | {"choices": [end]})
    if asked.stream_options.get("include_usage"):
        yield _event(head | {"choices": [], "usage": _usage(choices)})
    yield "data: [DONE]\n\n"


def _event(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"
