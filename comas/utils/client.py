"""A client for OpenAI-compatible servers, with limits, seeds, retries and checks."""

import asyncio
import logging
import re
import ssl
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import httpx2
import openai
from pydantic import BaseModel, Field, ValidationError

from comas.types import Message, ToolDescription
from comas.utils.chat import ChatEncoder, quoted_answer, tools_in_words, with_system_prompt
from comas.utils.files import errors_in_words
from comas.utils.interrupts import run
from comas.utils.thinking import ThinkingMarks

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
LIST_TIMEOUT_S = 10.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_SEED = 2**31 - 1
"""The largest seed for third-party servers, some of which use 32 bits."""
MAX_SHOWN_CHARS = 500
NO_KEY = "none"
OVERLONG = re.compile(
    r"(context|prompt|input|model)[ _-]?(length|size|window|limit)|too (long|large|many tokens)|"
    r"token.?count|less than \d+ tokens|max_new_tokens`? must be|exceed_context",
    re.IGNORECASE,
)
"""Codes and messages for an overlong prompt, of vLLM, SGLang, llama.cpp, TGI, OpenAI and others."""
FILTERED = re.compile(r"content[ _]?(filter|policy|management)|flagged|moderation", re.IGNORECASE)
"""Codes and messages of content filters."""
CUT_OFF = re.compile("length|max_.*token", re.IGNORECASE)
HELD_BACK = re.compile("filter|safety|refus", re.IGNORECASE)
BROKEN_OFF = re.compile("abort|error|cancel", re.IGNORECASE)
"""Finish reasons for a length limit, a content filter, and a failure. All others mean that the
model stopped by itself: stop, eos_token, end_turn, tool_calls ..."""


class RequestError(Exception):
    """A model gave no usable reply."""


class RefusedPromptError(RequestError):
    """The prompt exceeds the model's context, or a content filter blocks it or its answer. Other
    prompts may work."""


@dataclass(frozen=True)
class Endpoint:
    """A served model.

    Example: ``Endpoint("http://127.0.0.1:8000/v1", "agent_0")``
    """

    base_url: str
    model: str
    """The model's name on the server."""
    api_key: str = field(default=NO_KEY, repr=False)
    chats: ChatEncoder | None = field(default=None, repr=False, compare=False)
    """Encodes chats, to send token ids; None sends messages."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Variables of the chat template, if messages are sent."""
    thinking: ThinkingMarks | None = None
    """Marks of the thinking to remove from replies, if any."""
    extra_body: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Fields to add to a request's body or replace there; None removes a field."""


def error_in_address(base_url: str) -> tuple[str, str] | None:
    """Return the error in an endpoint's address and its remedy, without quoting it; or None."""
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        return "is not an HTTP address", "write it like base_url=http://127.0.0.1:8000/v1"
    if url.userinfo:
        # It would end up in logs and results.
        remedy = "write the address without it, and put the endpoint's key into OPENAI_API_KEY"
        return "contains a user name or a password", remedy
    return None


@dataclass(frozen=True)
class RequestOptions:
    """Options of requests. All defaults but ``num_retries`` are those of the published results."""

    temperature: float = 0.7
    max_tokens: int = 2048
    """Maximum number of tokens per reply."""
    concurrency: int = 32
    """Maximum number of requests in flight, over all tasks and models."""
    timeout_s: float = 600.0
    """Time limit for each wait for more of a reply."""
    num_retries: int = 6
    """Retries after a lost connection, a timeout, or a status of 408, 409, 429 or 5xx. The openai
    client waits half a second at first, then longer, or as Retry-After says."""
    system_prompt: str | None = None
    """System prompt of chats without a system message (``rollout.system_prompt``)."""

    @property
    def longest_s(self) -> float:
        """Time limit of a request, with a minute before each retry, also of a reply in drips."""
        return (1 + self.num_retries) * (self.timeout_s + 60)


@dataclass(frozen=True)
class Reply:
    """A reply of a model."""

    response: str
    """The text without the thinking."""
    finish_reason: Literal["stop", "length"]
    prompt_tokens: int
    completion_tokens: int
    """Number of sampled tokens; 0 if the server does not report it."""
    thinking: str = ""


class Client(AbstractAsyncContextManager["Client"]):
    """Asks several models, with at most ``options.concurrency`` requests in flight. Create it in a
    running event loop; as a context manager, it closes its connections."""

    def __init__(self, models: Sequence[Endpoint], options: RequestOptions) -> None:
        self._models = [(model, _open(model, options)) for model in models]
        self._settings = options
        self._in_flight = asyncio.Semaphore(options.concurrency)

    @property
    def num_models(self) -> int:
        return len(self._models)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        model_index: int,
        seed: int,
        temperature: float | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        tools: Sequence[ToolDescription] = (),
    ) -> Reply:
        """Return a model's reply, sampled at ``options.temperature`` by default. Raises
        RequestError if all retries fail."""
        model, server = self._models[model_index]
        chat = with_system_prompt(messages, self._settings.system_prompt)
        path, prompt = _prompt(model, chat, tools)
        body = {
            "model": model.model,
            **prompt,
            "temperature": self._settings.temperature if temperature is None else temperature,
            "max_tokens": min(max_tokens or self._settings.max_tokens, self._settings.max_tokens),
            "stop": [*stop] or None,
            "seed": seed & MAX_SEED if model.chats is None else seed,
            **model.extra_body,
        }
        body = {name: value for name, value in body.items() if value is not None}
        async with self._in_flight:
            try:
                async with asyncio.timeout(self._settings.longest_s):
                    response = await server.post(path, cast_to=httpx2.Response, body=body)
            except openai.APIStatusError as error:
                raise _status_error(error.response, model.api_key) from error
            except (openai.APIConnectionError, TimeoutError) as error:
                cause = error if isinstance(error, TimeoutError) else error.__cause__ or error
                reason = _shown(repr(cause), model.api_key)
                raise RequestError(f"no reply from {model.base_url}: {reason}") from error
        return read_reply(response.content, model)

    async def __aexit__(self, *error: object) -> None:
        for _, server in self._models:
            await server.close()


def _prompt(
    model: Endpoint, messages: Sequence[Message], tools: Sequence[ToolDescription]
) -> tuple[str, dict[str, object]]:
    """Return the path to send a chat to, and the part of the request body that holds it."""
    if model.chats is None:
        kwargs = {"chat_template_kwargs": model.template_kwargs} if model.template_kwargs else {}
        return "/chat/completions", {"messages": _in_words(messages, tools), **kwargs}
    token_ids = model.chats.encode(messages, tools)
    # By default, a server would drop marks that are special tokens.
    shown = {"skip_special_tokens": False} if model.chats.has_special_marks else {}
    return "/completions", {"prompt": token_ids, **shown}


def _in_words(messages: Sequence[Message], tools: Sequence[ToolDescription]) -> list[Message]:
    """Write tools, and their answers, as text into the messages, since our calls have no ids."""
    told = [
        {"role": "user", "content": quoted_answer(m["content"])} if m["role"] == "tool" else m
        for m in messages
    ]
    if tools:
        told[-1] = {**told[-1], "content": tools_in_words(tools) + told[-1]["content"]}
    return told


def _open(model: Endpoint, options: RequestOptions) -> openai.AsyncOpenAI:
    """Open connections to the configured address alone, as prompts and keys go there: redirects are
    not followed, and proxies of the environment not used for this machine."""
    is_here = httpx2.URL(model.base_url).host in LOOPBACK
    return openai.AsyncOpenAI(
        base_url=model.base_url,
        api_key=model.api_key,
        max_retries=options.num_retries,
        timeout=openai.Timeout(options.timeout_s, connect=CONNECT_TIMEOUT_S),
        http_client=openai.DefaultAsyncHttpxClient(
            verify=ssl.create_default_context(), trust_env=not is_here, follow_redirects=False
        ),
    )


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    """The thinking, if the server separates it. The content is null until the thinking ends."""


class _Choice(BaseModel):
    message: _Message = _Message()
    text: str | None = None
    """The answer, if token ids were sent instead of messages."""
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None
    model: str | None = None


def read_reply(body: bytes, model: Endpoint) -> Reply:
    """Read a server's reply. Raises RequestError if it is unusable."""
    try:
        completion = _Completion.model_validate_json(body)
    except ValidationError as error:
        said = f"the server's answer is unusable: {errors_in_words(error)}"
        raise RequestError(_shown(said, model.api_key)) from error
    if completion.model not in (None, "", model.model):
        _warn_of_another(model.base_url, model.model, completion.model)
    choice = completion.choices[0]
    message, reason = choice.message, choice.finish_reason or "stop"
    text = choice.text if message.content is None else message.content
    thinking = message.reasoning or message.reasoning_content or ""
    if message.refusal or HELD_BACK.search(reason):
        raise RefusedPromptError(f"the answer was held back: {message.refusal or reason}")
    if BROKEN_OFF.search(reason):
        raise RequestError(f"the server's answer is unusable: finish_reason {reason}")
    is_cut_off = bool(CUT_OFF.search(reason))
    if text is None and not thinking and not is_cut_off:
        raise RequestError("the server's answer is unusable: it has no content")
    text = text or ""
    if model.thinking is not None and not thinking:
        thinking, text = model.thinking.split(text)
    usage = completion.usage or _Usage()
    return Reply(
        text,
        "length" if is_cut_off else "stop",
        usage.prompt_tokens or 0,
        usage.completion_tokens or 0,
        thinking,
    )


@cache  # once
def _warn_of_another(base_url: str, asked: str, answers: str) -> None:
    log.warning("%s: %s is asked, and %s answers", base_url, asked, answers)


def _status_error(response: httpx2.Response, key: str) -> RequestError:
    status, text = response.status_code, response.text
    if response.is_redirect:
        place = _shown(response.headers.get("Location", "elsewhere"), key)
        return RequestError(f"status {status}: it redirects to {place}: give that address itself")
    is_refused = status == 413 or OVERLONG.search(text) or (status < 500 and FILTERED.search(text))
    kind = RefusedPromptError if is_refused and status not in (401, 404) else RequestError
    return kind(f"status {status}: {_shown(text, key)}")


def _shown(text: str, key: str) -> str:
    """Return the beginning of a server's message, without the API key that it may repeat."""
    secret = key.strip()  # errors show a key's line break in escaped form
    return (text if secret in ("", NO_KEY) else text.replace(secret, "***"))[:MAX_SHOWN_CHARS]


class _Listed(BaseModel):
    id: str
    max_model_len: int | None = None
    """The context length, which vLLM reports."""


class _Listing(BaseModel):
    data: list[_Listed]


def list_models(base_url: str, api_key: str) -> dict[str, int | None]:
    """Return the models that an endpoint lists, with their context lengths where known. Raises
    ValueError if it cannot be asked."""

    async def ask() -> httpx2.Response:
        options = RequestOptions(timeout_s=LIST_TIMEOUT_S, num_retries=0)
        async with _open(Endpoint(base_url, "", api_key), options) as server:
            return await server.get("/models", cast_to=httpx2.Response)

    try:
        listed = _Listing.model_validate_json(run(ask()).content).data
    except (openai.OpenAIError, ValueError, ImportError) as error:
        # httpx2 raises ValueError or ImportError for keys and proxies that it cannot use.
        reason = _shown(str(error.__cause__ or error).partition("\n")[0], api_key)
        raise ValueError(
            f"{base_url} does not list its models ({reason}). Is the server running, does the "
            "address look like http://127.0.0.1:8000/v1, and does OPENAI_API_KEY hold its key, if "
            "it needs one?"
        ) from error
    return {model.id: model.max_model_len for model in listed}
