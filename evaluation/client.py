"""Requests to OpenAI-compatible servers: bounded, seeded, retried, and checked."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from urllib.request import getproxies, proxy_bypass

import aiohttp
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    Field,
    ValidationError,
    model_validator,
)
from yarl import URL

from comas.types import Message
from comas.utils.chat import ChatEncoder
from comas.utils.files import faults_in_words
from comas.utils.thinking import ThinkingMarks
from evaluation.types import OverlongPromptError, RequestError

CONNECT_TIMEOUT_S = 10.0
RETRIED_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Statuses of faults that may pass by themselves."""
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 60.0
MAX_SHOWN_CHARS = 500
MAX_REPLY_BYTES = 16 << 20
"""A reply of the published 2,048 tokens has some thousands."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Endpoint:
    """A model at the address where it is served.

    Example: ``Endpoint("http://127.0.0.1:8000/v1", "agent_0")``
    """

    base_url: str
    model: str
    """The model's name on that server."""
    api_key: str = field(default="none", repr=False)
    chats: ChatEncoder | None = field(default=None, repr=False, compare=False)
    """How chats become the token ids that it is sent; None: it is sent messages, and what its own
    chat template makes of the marks that they spell is not for us to say."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Variables of the chat template, where it is sent messages."""
    thinking: ThinkingMarks | None = None
    """Marks of what is left out of its replies' texts; None: nothing is."""


def fault_of_address(base_url: str) -> tuple[str, str] | None:
    """Return the fault of an endpoint's address and the remedy, neither of which shows what it
    holds; None if there is no fault."""
    try:
        url = URL(base_url)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        return "is no address", "write it like base_url=http://127.0.0.1:8000/v1"
    if url.user is not None or url.password is not None:
        # It would be in the log and in the results, whatever the server makes of it.
        remedy = "write the address without it, and put the endpoint's key into OPENAI_API_KEY"
        return "holds a user name or a password", remedy
    return None


def proxy_of(base_url: str) -> str | None:
    """The proxy that the environment names for an address; those on this machine have none."""
    url = URL(base_url)
    if url.host is None or url.host in LOOPBACK or proxy_bypass(url.host):
        return None
    proxy = getproxies().get(url.scheme)
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


@dataclass(frozen=True)
class RequestOptions:
    """Options of requests. The defaults but ``num_retries`` are those of the published results."""

    temperature: float = 0.7
    max_tokens: int = 2048
    """Maximum number of tokens per reply."""
    concurrency: int = 32
    """Maximum number of requests in flight, over all tasks and models."""
    timeout_s: float = 600.0
    """Time limit per attempt at a reply."""
    num_retries: int = 6
    """After a lost connection, a timeout or a status in ``RETRIED_STATUSES``. The first pause
    is 0.5 s, and each is twice the one before unless the server asks for a longer one: about half
    a minute in total."""
    system_prompt: str | None = None
    """What the models of a run are told before a chat that has no system message of its own, as
    in their training (``rollout.system_prompt``)."""


class _Choice(BaseModel):
    text: str | None = Field(validation_alias=AliasChoices(AliasPath("message", "content"), "text"))
    """In a chat, the content of its message."""
    thinking: str | None = Field(
        default=None,
        validation_alias=AliasChoices(
            AliasPath("message", "reasoning"), AliasPath("message", "reasoning_content")
        ),
    )
    """What a server that tells thinking from content itself has left out of the content, which is
    then null until the thinking ends."""
    finish_reason: Literal["stop", "length"]

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.text is None and self.thinking is None:
            raise ValueError("it has no content")
        return self


class _Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int


class _Completion(BaseModel):
    """The part of a server's answer that is read, all of it required."""

    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage


@dataclass(frozen=True)
class Reply:
    """A reply of a model."""

    text: str
    """Without what it thought."""
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    wall_s: float
    """From the first attempt to the reply, retries included; queueing is not."""
    thinking: str = ""


class Client:
    """Asks the models of a subject, with at most ``options.concurrency`` requests in flight.

    Create it in a running event loop. A context manager that closes the connections.
    """

    def __init__(self, models: Sequence[Endpoint], options: RequestOptions) -> None:
        self._models = [(model, _open_http(model, options)) for model in models]
        self._settings = options
        self._in_flight = asyncio.Semaphore(options.concurrency)

    @property
    def num_models(self) -> int:
        """Number of models to ask."""
        return len(self._models)

    async def complete(self, messages: Sequence[Message], *, model_index: int, seed: int) -> Reply:
        """One reply of a model.

        Raises RequestError when no reply comes in spite of all retries, or an unusable one: not
        JSON, larger than 16 MiB, without choices, content or token counts, or ended by anything
        but the model or ``max_tokens``.
        """
        model, http = self._models[model_index]
        chat = with_system_prompt(messages, self._settings.system_prompt)
        path, prompt = _prompt(model, chat)
        body = {
            "model": model.model,
            **prompt,
            "temperature": self._settings.temperature,
            "max_tokens": self._settings.max_tokens,
            "seed": seed,
        }
        async with self._in_flight:
            started = time.perf_counter()
            content = await self._post(f"{model.base_url.rstrip('/')}/{path}", body, http=http)
            wall_s = time.perf_counter() - started
        return _read_reply(content, wall_s=wall_s, marks=model.thinking)

    async def _post(self, url: str, body: object, *, http: aiohttp.ClientSession) -> bytes:
        """The body of a successful reply, after as many retries as the options allow."""
        num_retries_left, pause_s = self._settings.num_retries, FIRST_PAUSE_S
        while True:
            asked_pause_s = 0.0
            try:
                async with http.post(url, json=body) as response:
                    content = await _read_body(response)
                if response.ok:
                    return content
                error = _status_error(response.status, content.decode(errors="replace"))
                if response.status not in RETRIED_STATUSES:
                    raise error
                asked_pause_s = _asked_pause_s(response.headers)
            except TimeoutError:
                error = RequestError(f"no reply from {url} within {self._settings.timeout_s:g} s")
            except aiohttp.ClientError as fault:
                error = RequestError(f"no reply from {url}: {_in_words(fault)}")
            if num_retries_left == 0:
                raise error
            num_retries_left -= 1
            await asyncio.sleep(min(max(pause_s, asked_pause_s), MAX_PAUSE_S))
            pause_s *= 2

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for _, http in self._models:
            await http.close()


def with_system_prompt(messages: Sequence[Message], text: str | None) -> Sequence[Message]:
    """The chat, begun by the system prompt of a run unless it has one of its own."""
    if text is None or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": text}, *messages]


def _prompt(model: Endpoint, messages: Sequence[Message]) -> tuple[str, dict[str, object]]:
    """Return the path that a chat is sent to, and the part of the body that holds it."""
    if model.chats is None:
        kwargs = {"chat_template_kwargs": model.template_kwargs} if model.template_kwargs else {}
        return "chat/completions", {"messages": messages, **kwargs}
    [token_ids] = model.chats.encode([messages])
    # Else a server would leave out the marks where they are special tokens.
    shown = {"skip_special_tokens": False} if model.chats.has_special_marks else {}
    return "completions", {"prompt": token_ids, **shown}


def _open_http(model: Endpoint, options: RequestOptions) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        # The semaphore is the only limit.
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=options.timeout_s, sock_connect=CONNECT_TIMEOUT_S),
        # Uncompressed, since a few bytes may unpack to gigabytes.
        headers={"Authorization": f"Bearer {model.api_key}", "Accept-Encoding": "identity"},
        auto_decompress=False,
        # Trap: with trust_env it reads ~/.netrc as well, and refuses to send two authorizations.
        trust_env=False,
        proxy=proxy_of(model.base_url),
    )


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > MAX_REPLY_BYTES:
            response.close()
            raise RequestError(f"the server's answer has more than {MAX_REPLY_BYTES >> 20} MiB")
    return bytes(body)


def _in_words(fault: aiohttp.ClientError) -> str:
    # Trap: its own text has the whole address, and that of a proxy may hold a password.
    if isinstance(fault, aiohttp.ClientResponseError):
        by = "the proxy: " if isinstance(fault, aiohttp.ClientHttpProxyError) else ""
        return f"{by}status {fault.status}: {fault.message[:MAX_SHOWN_CHARS]}"
    return str(fault) or type(fault).__name__


def _status_error(status: int, text: str) -> RequestError:
    # Only the text tells an overlong prompt from other bad requests.
    kind = OverlongPromptError if status == 400 and "context length" in text else RequestError
    return kind(f"status {status}: {text[:MAX_SHOWN_CHARS]}")


def _asked_pause_s(headers: Mapping[str, str]) -> float:
    """The pause that the server asks for, in seconds; 0 if it names none, or a date."""
    asked = headers.get("Retry-After", "")
    return float(asked) if asked.isdecimal() else 0.0


def _read_reply(body: bytes, *, wall_s: float, marks: ThinkingMarks | None) -> Reply:
    try:
        completion = _Completion.model_validate_json(body)
    except ValidationError as error:
        raise RequestError(f"the server's answer is unusable: {faults_in_words(error)}") from error
    choice, usage = completion.choices[0], completion.usage
    thinking, text = choice.thinking or "", choice.text or ""
    if marks is not None and not thinking:
        thinking, text = marks.split(text)
    return Reply(
        text,
        choice.finish_reason,
        usage.prompt_tokens,
        usage.completion_tokens,
        wall_s=round(wall_s, 4),
        thinking=thinking,
    )
