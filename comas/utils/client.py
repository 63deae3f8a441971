"""Requests to OpenAI-compatible servers: bounded, seeded, retried, and checked."""

import asyncio
import json
import logging
import re
import ssl
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import httpx2
import openai
from pydantic import BaseModel, Field, ValidationError

from comas.types import Message
from comas.utils.chat import ChatEncoder
from comas.utils.files import faults_in_words
from comas.utils.interrupts import run
from comas.utils.thinking import ThinkingMarks

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
LIST_TIMEOUT_S = 10.0
MAX_SHOWN_CHARS = 500
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_REPLY_BYTES = 64 * 2**20
NO_KEY = "none"
MAX_SEED = 2**31 - 1
"""Of servers of other people, of which some read a seed as 32 bits."""

PASSING = (408, 409, 429)
"""Statuses below 500 that may pass."""
USED_UP = re.compile(
    r"insufficient_quota|billing_(hard_limit|not_active)|credit balance|"
    r"insufficient[ _](credit|balance|funds)|budget.exceeded",
    re.IGNORECASE,
)
"""What is said of an account that has nothing left, which does not pass by itself."""
OVERLONG = re.compile(
    r"(context|prompt|input|model)[ _-]?(length|size|window|limit)|too (long|large|many tokens)|"
    r"token.?count|less than \d+ tokens|max_new_tokens`? must be|exceed_context",
    re.IGNORECASE,
)
"""How vLLM, SGLang, llama.cpp, TGI, OpenAI, Anthropic, Gemini and others call an overlong prompt,
by ``error.code`` or in words."""
FILTERED = re.compile(
    r"content[ _]?(filter|policy|management|exists)|flagged|moderation|usage polic|inappropriate|"
    r"data_inspection|prohibited_content",
    re.IGNORECASE,
)
"""How a prompt is called that a content filter holds back."""

CUT_OFF = re.compile("length|max_.*token", re.IGNORECASE)
HELD_BACK = re.compile(
    "filter|safety|refus|sensitive|recitation|prohibited|blocklist|spii", re.IGNORECASE
)
BROKEN_OFF = re.compile("abort|error|cancel|insufficient|timeout|malformed", re.IGNORECASE)
"""Finish reasons of replies at their limit, of a content filter, and of failures. All others are
the model's own end: stop, eos_token, end_turn, tool_calls ..."""


class RequestError(Exception):
    """A model gave no usable reply."""


class RefusedError(RequestError):
    """A server refuses a request, so retrying is pointless: an unknown key or model, say."""


class BadRequestError(RefusedError):
    """A server refuses what was sent, the prompt or one of the options."""


class RefusedPromptError(BadRequestError):
    """The prompt does not fit into the model's context, or a content filter holds it or its answer
    back: another prompt may have an answer."""


class UnusableReplyError(RequestError):
    """A reply is not JSON, lacks choices or content, or was broken off."""


@dataclass(frozen=True)
class Endpoint:
    """A model at the address where it is served.

    Example: ``Endpoint("http://127.0.0.1:8000/v1", "agent_0")``
    """

    base_url: str
    model: str
    """The model's name on that server."""
    api_key: str = field(default=NO_KEY, repr=False)
    chats: ChatEncoder | None = field(default=None, repr=False, compare=False)
    """How chats become the token ids that it is sent; None: it is sent messages."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Variables of the chat template, where it is sent messages."""
    thinking: ThinkingMarks | None = None
    """Marks of what is left out of its replies' texts; None: nothing is."""
    extra_body: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What requests for a reply hold besides, or otherwise; None leaves a name out of them."""
    answered_as: set[str] = field(default_factory=set, repr=False, compare=False)
    """The names of models that its replies gave."""


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
    """Time limit per attempt at a whole reply."""
    num_retries: int = 6
    """After a lost connection, a timeout or a status that may pass (408, 409, 429, 5xx): the pauses
    of the openai client, which grow from half a second and follow Retry-After."""
    system_prompt: str | None = None
    """What comes before a chat that has no system message (``rollout.system_prompt``)."""


class _Part(BaseModel):
    """A part of a content that is a list, such as ``{"type": "text", "text": "71"}``."""

    text: str | None = None
    thinking: "str | list[_Part] | None" = None


_Content = str | list[_Part] | None


class _Message(BaseModel):
    content: _Content = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    """What a server that tells thinking from content has left out of the content, which is null
    until the thinking ends."""


class _Choice(BaseModel):
    message: _Message = _Message()
    text: str | None = None
    """Where no chat was sent."""
    finish_reason: str | None = None


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: Any = None
    model: str | None = None


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
    finish_reason: Literal["stop", "length"]
    prompt_tokens: int
    completion_tokens: int
    """0 of a server that does not count."""
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
            "seed": seed & MAX_SEED if model.chats is None else seed,
            **model.extra_body,
        }
        body = {name: value for name, value in body.items() if value is not None}
        return _read_reply(await self._post(path, body, model_index=model_index), model)

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
                raise _status_error(error.response, model.api_key) from error
            except openai.APIConnectionError as error:
                reason = _shown(repr(error.__cause__ or error), model.api_key)
                raise RequestError(f"no reply from {model.base_url}: {reason}") from error
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
        http_client=_Connections(model.base_url, limit_s=options.timeout_s),
    )


class _Connections(openai.DefaultAsyncHttpxClient):
    """Reads whole replies, within a time and a size. It unpacks none, as one may be a hundred
    thousand times as large as it was sent, and follows no redirection: prompts and keys go to the
    address that was given alone."""

    def __init__(self, base_url: str, *, limit_s: float) -> None:
        super().__init__(**connection(base_url), follow_redirects=False)
        self._limit_s = limit_s

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        request.headers["Accept-Encoding"] = "identity"
        body = bytearray()
        try:
            async with asyncio.timeout(self._limit_s):
                response = await super().send(request, **(options | {"stream": True}))
                async with aclosing(response):
                    async for part in response.aiter_raw():
                        body += part
                        if len(body) > MAX_REPLY_BYTES:
                            raise httpx2.ReadError(f"it has more than {MAX_REPLY_BYTES} bytes")
        except TimeoutError as error:
            raise httpx2.ReadTimeout(f"not whole within {self._limit_s:g} s") from error
        response.headers.pop("Content-Encoding", None)
        if USED_UP.search(body.decode(errors="replace")):
            response.headers["x-should-retry"] = "false"  # which the openai client obeys
        return httpx2.Response(
            _status_within(body) or response.status_code,
            headers=response.headers,
            content=bytes(body),
            request=request,
        )


def _status_within(body: bytes | bytearray) -> int | None:
    """Return the status of an error that a gateway sends as the body of a reply with status 200;
    None where there is none, or the reply has a status of its own."""
    with suppress(ValueError, LookupError, TypeError):
        if error := json.loads(body)["error"]:
            code = str(error["code"]) if isinstance(error, dict) and "code" in error else ""
            is_status = code.isdigit() and 400 <= int(code) < 600
            is_rate = re.search("rate.?limit|quota|too many", str(error), re.IGNORECASE)
            return int(code) if is_status else 429 if is_rate else 500
    return None


def connection(base_url: str) -> dict[str, Any]:
    """Return what a connection to an address takes from the environment: the certificates of the
    machine, and the proxies, but for an address on this machine."""
    is_here = httpx2.URL(base_url).host in LOOPBACK
    return {"verify": ssl.create_default_context(), "trust_env": not is_here}


def _status_error(response: httpx2.Response, key: str) -> RequestError:
    status, text = response.status_code, response.text
    said = f"status {status}: {_shown(text, key)}"
    if response.is_redirect:
        place = _shown(response.headers.get("Location", "elsewhere"), key)
        return RefusedError(f"status {status}: it redirects to {place}: give that address itself")
    if status in (401, 404):
        return RefusedError(said)
    if status == 413 or OVERLONG.search(text) or (status < 500 and FILTERED.search(text)):
        return RefusedPromptError(said)
    if USED_UP.search(text):
        return RefusedError(said)
    if status >= 500 or status in PASSING:
        return RequestError(said)
    return (BadRequestError if status in (400, 422) else RefusedError)(said)


def _shown(text: str, key: str) -> str:
    """Return the beginning of what a server says, which may repeat the key that it was sent."""
    secret = key.strip()  # what cannot be sent, such as a line break, is spelled in an error
    hidden = text if secret in ("", NO_KEY) else text.replace(secret, "***")
    return hidden[:MAX_SHOWN_CHARS]


def _read_reply(body: bytes, model: Endpoint) -> Reply:
    try:
        completion = _Completion.model_validate_json(_without_lone_surrogates(body))
    except ValidationError as error:
        said = f"the server's answer is unusable: {faults_in_words(error)}"
        raise UnusableReplyError(_shown(said, model.api_key)) from error
    _note_name(completion.model, model)
    choice = completion.choices[0]
    message, reason = choice.message, choice.finish_reason or "stop"
    content = choice.text if message.content is None else message.content
    thinking = message.reasoning or message.reasoning_content or _thinking_in(content)
    text = _text_of(content)
    if message.refusal or HELD_BACK.search(reason):
        raise RefusedPromptError(f"the answer was held back: {message.refusal or reason}")
    if BROKEN_OFF.search(reason):
        raise UnusableReplyError(f"the server's answer is unusable: finish_reason {reason}")
    is_cut_off = bool(CUT_OFF.search(reason))
    if content is None and not thinking and not is_cut_off:
        raise UnusableReplyError("the server's answer is unusable: it has no content")
    if model.thinking is not None and not thinking:
        thinking, text = model.thinking.split(text)
    prompt_tokens = _count(completion.usage, "prompt_tokens")
    completion_tokens = _count(completion.usage, "completion_tokens")
    finish_reason: Literal["stop", "length"] = "length" if is_cut_off else "stop"
    return Reply(text, finish_reason, prompt_tokens, completion_tokens, thinking)


def _note_name(name: str | None, model: Endpoint) -> None:
    """Say once of each other model that it answers in the place of the one that is asked."""
    if name and name not in model.answered_as:
        model.answered_as.add(name)
        if name != model.model:
            log.warning("%s: %s is asked, and %s answers", model.base_url, model.model, name)


def _text_of(content: _Content) -> str:
    return (
        "".join(part.text or "" for part in content) if isinstance(content, list) else content or ""
    )


def _thinking_in(content: _Content) -> str:
    return "".join(_text_of(p.thinking) for p in content) if isinstance(content, list) else ""


def _count(usage: Any, name: str) -> int:
    found = usage.get(name) if isinstance(usage, dict) else None
    return max(0, found) if isinstance(found, int) else 0


def _without_lone_surrogates(body: bytes) -> bytes:
    """Return JSON with "?" for halves of surrogate pairs, which pydantic refuses to read."""
    with suppress(ValueError, RecursionError):
        return json.dumps(json.loads(body), ensure_ascii=False).encode(errors="replace")
    return body


class _Listed(BaseModel):
    id: str
    max_model_len: int | None = None
    """Its context length, as vLLM reports it."""


class _Listing(BaseModel):
    data: list[_Listed]


def list_models(base_url: str, api_key: str, *, key_in: str) -> dict[str, int | None]:
    """Return the name of each model that an endpoint lists, and its context length where it is
    known. Raises ValueError when it does not say; ``key_in`` is where its key belongs."""

    async def ask() -> httpx2.Response:
        options = RequestOptions(timeout_s=LIST_TIMEOUT_S, num_retries=0)
        async with _open(Endpoint(base_url, "", api_key), options) as server:
            return await server.get("/models", cast_to=httpx2.Response)

    try:
        listed = _Listing.model_validate_json(run(ask()).content).data
    except (openai.OpenAIError, ValueError, ImportError) as error:
        # A ValueError or ImportError of httpx2: a key or a kind of proxy that it cannot use.
        reason = _shown(str(error.__cause__ or error).partition("\n")[0], api_key)
        raise ValueError(
            f"{base_url} does not list its models ({reason}). Is the server running, does the "
            f"address look like http://127.0.0.1:8000/v1, and does {key_in} hold its key, if it "
            "wants one?"
        ) from error
    return {model.id: model.max_model_len for model in listed}
