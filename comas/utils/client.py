"""Requests to OpenAI-compatible servers: bounded, seeded, retried, and checked."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import httpx2
import openai
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    Field,
    ValidationError,
    model_validator,
)

from comas.types import Message
from comas.utils.chat import ChatEncoder
from comas.utils.files import faults_in_words
from comas.utils.thinking import ThinkingMarks

CONNECT_TIMEOUT_S = 10.0
LIST_TIMEOUT_S = 10.0
MAX_SHOWN_CHARS = 500
LOOPBACK = ("127.0.0.1", "localhost", "::1")
PASSING = (408, 409, 429)
"""Statuses below 500 that may pass."""


class RequestError(Exception):
    """A model gave no usable reply."""


class RefusedError(RequestError):
    """A server refuses a request, so retrying is pointless: an unknown key or model, say."""


class OverlongPromptError(RefusedError):
    """The prompt does not fit into the model's context."""


class UnusableReplyError(RequestError):
    """A reply is not JSON, lacks choices, content or token counts, or was ended by anything but the
    model or ``max_tokens``."""


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
    """How chats become the token ids that it is sent; None: it is sent messages."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Variables of the chat template, where it is sent messages."""
    thinking: ThinkingMarks | None = None
    """Marks of what is left out of its replies' texts; None: nothing is."""


def fault_of_address(base_url: str, *, key_in: str = "OPENAI_API_KEY") -> tuple[str, str] | None:
    """Return the fault of an endpoint's address and the remedy, neither of which shows what it
    holds; None if there is no fault. ``key_in`` says where the endpoint's key belongs."""
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        return "is no address", "write it like base_url=http://127.0.0.1:8000/v1"
    if url.userinfo:
        # It would be in the log and in the results, whatever the server makes of it.
        remedy = f"write the address without it, and put the endpoint's key into {key_in}"
        return "holds a user name or a password", remedy
    return None


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
    """After a lost connection, a timeout or a status that may pass (408, 409, 429, 5xx): the pauses
    of the openai client, which grow from half a second and follow Retry-After."""
    system_prompt: str | None = None
    """What comes before a chat that has no system message (``rollout.system_prompt``)."""


class _Choice(BaseModel):
    text: str | None = Field(validation_alias=AliasChoices(AliasPath("message", "content"), "text"))
    """In a chat, the content of its message."""
    thinking: str | None = Field(
        default=None,
        validation_alias=AliasChoices(
            AliasPath("message", "reasoning"), AliasPath("message", "reasoning_content")
        ),
    )
    """What a server that tells thinking from content has left out of the content, which is null
    until the thinking ends."""
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
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage


class _Scored(BaseModel):
    tokens: list[str]
    token_logprobs: list[float | None]


class _EchoChoice(BaseModel):
    logprobs: _Scored


class _Echo(BaseModel):
    """The part of an echoed prompt that is read."""

    choices: list[_EchoChoice] = Field(min_length=1)


@dataclass(frozen=True)
class Reply:
    """A reply of a model."""

    response: str
    """Without what it thought."""
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    thinking: str = ""


class Client:
    """Asks the models of a subject, with at most ``options.concurrency`` requests in flight.

    Create it in a running event loop. A context manager that closes the connections.
    """

    def __init__(self, models: Sequence[Endpoint], options: RequestOptions) -> None:
        self._models = [(model, _open(model, options)) for model in models]
        self._settings = options
        self._in_flight = asyncio.Semaphore(options.concurrency)

    @property
    def num_models(self) -> int:
        """Number of models to ask."""
        return len(self._models)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        model_index: int,
        seed: int,
        temperature: float | None = None,
    ) -> Reply:
        """One reply of a model, at ``options.temperature`` where no other is given.

        Raises RequestError when no usable reply comes in spite of all retries.
        """
        model, _ = self._models[model_index]
        chat = with_system_prompt(messages, self._settings.system_prompt)
        path, prompt = _prompt(model, chat)
        body = {
            "model": model.model,
            **prompt,
            "temperature": self._settings.temperature if temperature is None else temperature,
            "max_tokens": self._settings.max_tokens,
            "seed": seed,
        }
        content = await self._post(path, body, model_index=model_index)
        return _read_reply(content, marks=model.thinking)

    async def logprobs(
        self, token_ids: Sequence[int], *, model_index: int
    ) -> list[tuple[str, float]]:
        """Return each token as a model spells it, with its log-prob after those before it (0 of the
        first), by the ``echo`` of /v1/completions.

        Raises RequestError when no usable reply comes in spite of all retries, and RefusedError
        where the server has no such log-probs.
        """
        model, _ = self._models[model_index]
        body = {
            "model": model.model,
            "prompt": token_ids,
            "max_tokens": 1,
            "echo": True,
            "logprobs": 1,
        }
        content = await self._post("/completions", body, model_index=model_index)
        try:
            found = _Echo.model_validate_json(content).choices[0].logprobs
        except ValidationError as error:
            raise RefusedError(f"no log-probs of a prompt: {faults_in_words(error)}") from error
        logprobs = [0.0, *(each for each in found.token_logprobs[1:] if each is not None)]
        if len(found.tokens) != len(logprobs) or len(logprobs) < len(token_ids):
            raise RefusedError("no log-probs of a prompt: the reply lacks some")
        return list(zip(found.tokens, logprobs, strict=True))[: len(token_ids)]

    async def _post(self, path: str, body: dict[str, Any], *, model_index: int) -> bytes:
        """Return what a model's server answers. Raises RequestError where it does not."""
        model, server = self._models[model_index]
        async with self._in_flight:
            try:
                response = await server.post(path, cast_to=httpx2.Response, body=body)
            except openai.APIStatusError as error:
                raise _status_error(error.status_code, error.response.text) from error
            except openai.APIConnectionError as error:
                reason = error.__cause__ or error
                raise RequestError(f"no reply from {model.base_url}: {reason!r}") from error
        return response.content

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for _, server in self._models:
            await server.close()


def with_system_prompt(messages: Sequence[Message], text: str | None) -> Sequence[Message]:
    """The chat, begun by the system prompt of a run unless it has one of its own."""
    if text is None or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": text}, *messages]


def _prompt(model: Endpoint, messages: Sequence[Message]) -> tuple[str, dict[str, object]]:
    """Return the path that a chat is sent to, and the part of the body that holds it."""
    if model.chats is None:
        kwargs = {"chat_template_kwargs": model.template_kwargs} if model.template_kwargs else {}
        return "/chat/completions", {"messages": messages, **kwargs}
    [token_ids] = model.chats.encode([messages])
    # Else a server would leave out the marks where they are special tokens.
    shown = {"skip_special_tokens": False} if model.chats.has_special_marks else {}
    return "/completions", {"prompt": token_ids, **shown}


def _open(model: Endpoint, options: RequestOptions) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=model.base_url,
        api_key=model.api_key,
        max_retries=options.num_retries,
        timeout=openai.Timeout(options.timeout_s, connect=CONNECT_TIMEOUT_S),
        http_client=openai.DefaultAsyncHttpxClient(**connection(model.base_url)),
    )


def connection(base_url: str) -> dict[str, Any]:
    """Return what a connection to an address takes from the environment: the certificates of the
    machine, and the proxies, but for an address on this machine."""
    is_here = httpx2.URL(base_url).host in LOOPBACK
    return {"verify": ssl.create_default_context(), "trust_env": not is_here}


def _status_error(status: int, text: str) -> RequestError:
    # Only the text tells an overlong prompt from other bad requests.
    refused = OverlongPromptError if status == 400 and "context length" in text else RefusedError
    kind = RequestError if status >= 500 or status in PASSING else refused
    return kind(f"status {status}: {text[:MAX_SHOWN_CHARS]}")


def _read_reply(body: bytes, *, marks: ThinkingMarks | None) -> Reply:
    try:
        completion = _Completion.model_validate_json(body)
    except ValidationError as error:
        said = f"the server's answer is unusable: {faults_in_words(error)}"
        raise UnusableReplyError(said) from error
    choice, usage = completion.choices[0], completion.usage
    thinking, text = choice.thinking or "", choice.text or ""
    if marks is not None and not thinking:
        thinking, text = marks.split(text)
    tokens = usage.prompt_tokens, usage.completion_tokens
    return Reply(text, choice.finish_reason, *tokens, thinking)


class _Listed(BaseModel):
    id: str
    max_model_len: int | None = None
    """Its context length, as vLLM reports it."""


class _Listing(BaseModel):
    data: list[_Listed]


def list_models(base_url: str, api_key: str) -> dict[str, int | None]:
    """Return the name of each model that an endpoint lists, and its context length where it is
    known. Raises ValueError when it does not say, a question that whoever asks may end."""
    try:
        with openai.OpenAI(
            base_url=base_url,
            api_key=api_key,
            max_retries=0,
            timeout=LIST_TIMEOUT_S,
            http_client=openai.DefaultHttpxClient(**connection(base_url)),
        ) as server:
            reply = server.get("/models", cast_to=httpx2.Response)
        listed = _Listing.model_validate_json(reply.content).data
    except (openai.OpenAIError, ValueError, ImportError) as error:
        # A ValueError or ImportError of httpx2: a key or a kind of proxy that it cannot use.
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise ValueError(
            f"{base_url} does not list its models ({reason}). Is the server "
            "running, does the address look like http://127.0.0.1:8000/v1"
        ) from error
    return {model.id: model.max_model_len for model in listed}
