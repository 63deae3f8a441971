"""A client for OpenAI-compatible servers, with limits, seeds, retries and checks."""

import asyncio
import re
import ssl
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Self

import httpx2
import openai
from pydantic import BaseModel

from comas.types import Message, ToolDescription
from comas.utils.chat import quoted_answer, tools_in_words
from comas.utils.endpoint import Endpoint
from comas.utils.interrupts import run
from comas.utils.replies import (
    Reply,
    RequestError,
    read_reply,
    shown,
    status_error,
    status_within,
)

CONNECT_TIMEOUT_S = 10.0
LIST_TIMEOUT_S = 10.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_REPLY_BYTES = 64 * 2**20
MAX_SEED = 2**31 - 1
"""The largest seed for third-party servers, some of which use 32 bits."""
USED_UP = re.compile(
    r"insufficient_quota|billing_(hard_limit|not_active)|credit balance|"
    r"insufficient[ _](credit|balance|funds)|budget.exceeded",
    re.IGNORECASE,
)
"""Errors of an account without credit, for which a retry is useless."""


@dataclass(frozen=True)
class RequestOptions:
    """Options of requests. All defaults but ``num_retries`` are those of the published results."""

    temperature: float = 0.7
    max_tokens: int = 2048
    """Maximum number of tokens per reply."""
    concurrency: int = 32
    """Maximum number of requests in flight, over all tasks and models."""
    timeout_s: float = 600.0
    """Time limit per attempt at a whole reply."""
    num_retries: int = 6
    """Retries after a lost connection, a timeout, or a status of 408, 409, 429 or 5xx. The openai
    client waits half a second at first, then longer, or as Retry-After says."""
    system_prompt: str | None = None
    """System prompt of chats without a system message (``rollout.system_prompt``)."""


class Client:
    """Asks several models, with at most ``options.concurrency`` requests in flight. Create it in a
    running event loop; as a context manager, it closes its connections."""

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
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        tools: Sequence[ToolDescription] = (),
    ) -> Reply:
        """Return a model's reply, sampled at ``options.temperature`` by default. Raises
        RequestError if all retries fail."""
        model, _ = self._models[model_index]
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
        return read_reply(await self._post(path, body, model_index=model_index), model)

    async def _post(self, path: str, body: dict[str, Any], *, model_index: int) -> bytes:
        """Return the body of the server's response. Raises RequestError if there is none."""
        model, server = self._models[model_index]
        async with self._in_flight:
            try:
                response = await server.post(path, cast_to=httpx2.Response, body=body)
            except openai.APIStatusError as error:
                raise status_error(error.response, model.api_key) from error
            except openai.APIConnectionError as error:
                reason = shown(repr(error.__cause__ or error), model.api_key)
                raise RequestError(f"no reply from {model.base_url}: {reason}") from error
        return response.content

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for _, server in self._models:
            await server.close()


def with_system_prompt(messages: Sequence[Message], text: str | None) -> Sequence[Message]:
    """Return the chat, with ``text`` as system prompt unless it has one of its own."""
    if text is None or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": text}, *messages]


def _prompt(
    model: Endpoint, messages: Sequence[Message], tools: Sequence[ToolDescription]
) -> tuple[str, dict[str, object]]:
    """Return the path to send a chat to, and the part of the request body that holds it."""
    if model.chats is None:
        kwargs = {"chat_template_kwargs": model.template_kwargs} if model.template_kwargs else {}
        return "/chat/completions", {"messages": _in_words(messages, tools), **kwargs}
    [token_ids] = model.chats.encode([messages], tools)
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
    return openai.AsyncOpenAI(
        base_url=model.base_url,
        api_key=model.api_key,
        max_retries=options.num_retries,
        timeout=openai.Timeout(options.timeout_s, connect=CONNECT_TIMEOUT_S),
        http_client=_Connections(model.base_url, limit_s=options.timeout_s),
    )


class _Connections(openai.DefaultAsyncHttpxClient):
    """Reads complete replies within a time and size limit. It accepts no compression (a small reply
    could unpack to gigabytes) and follows no redirects: prompts and keys only go to the configured
    address."""

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
            response.headers["x-should-retry"] = "false"  # the openai client obeys this
        return httpx2.Response(
            status_within(body) or response.status_code,
            headers=response.headers,
            content=bytes(body),
            request=request,
        )


def connection(base_url: str) -> dict[str, Any]:
    """Return options that use the machine's certificates, and proxies from the environment unless
    the address is on this machine."""
    is_here = httpx2.URL(base_url).host in LOOPBACK
    return {"verify": ssl.create_default_context(), "trust_env": not is_here}


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
        reason = shown(str(error.__cause__ or error).partition("\n")[0], api_key)
        raise ValueError(
            f"{base_url} does not list its models ({reason}). Is the server running, does the "
            "address look like http://127.0.0.1:8000/v1, and does OPENAI_API_KEY hold its key, if "
            "it needs one?"
        ) from error
    return {model.id: model.max_model_len for model in listed}
