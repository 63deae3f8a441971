"""Read the replies and errors of OpenAI-compatible servers in their many forms."""

import json
import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import httpx2
from pydantic import BaseModel, Field, ValidationError

from comas.utils.endpoint import NO_KEY, Endpoint
from comas.utils.files import errors_in_words

log = logging.getLogger(__name__)

MAX_SHOWN_CHARS = 500
OVERLONG = re.compile(
    r"(context|prompt|input|model)[ _-]?(length|size|window|limit)|too (long|large|many tokens)|"
    r"token.?count|less than \d+ tokens|max_new_tokens`? must be|exceed_context",
    re.IGNORECASE,
)
"""Codes and messages for an overlong prompt of vLLM, SGLang, llama.cpp, TGI, OpenAI, Anthropic,
Gemini and others."""
FILTERED = re.compile(
    r"content[ _]?(filter|policy|management|exists)|flagged|moderation|usage polic|inappropriate|"
    r"data_inspection|prohibited_content",
    re.IGNORECASE,
)
"""Codes and messages of content filters."""

CUT_OFF = re.compile("length|max_.*token", re.IGNORECASE)
HELD_BACK = re.compile(
    "filter|safety|refus|sensitive|recitation|prohibited|blocklist|spii", re.IGNORECASE
)
BROKEN_OFF = re.compile("abort|error|cancel|insufficient|timeout|malformed", re.IGNORECASE)
"""Finish reasons for a length limit, a content filter, and a failure. All others mean that the
model stopped by itself: stop, eos_token, end_turn, tool_calls ..."""


class RequestError(Exception):
    """A model gave no usable reply."""


class RefusedPromptError(RequestError):
    """The prompt exceeds the model's context, or a content filter blocks it or its answer. Other
    prompts may work."""


class _Part(BaseModel):
    """An element of a content list, such as ``{"type": "text", "text": "71"}``."""

    text: str | None = None
    thinking: "str | list[_Part] | None" = None


_Content = str | list[_Part] | None


class _Message(BaseModel):
    content: _Content = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    """The thinking, if the server separates it. The content is null until the thinking ends."""


class _Choice(BaseModel):
    message: _Message = _Message()
    text: str | None = None
    """The answer, if token ids were sent instead of messages."""
    finish_reason: str | None = None


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: Any = None
    model: str | None = None


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


def read_reply(body: bytes, model: Endpoint) -> Reply:
    try:
        completion = _Completion.model_validate_json(_without_lone_surrogates(body))
    except ValidationError as error:
        said = f"the server's answer is unusable: {errors_in_words(error)}"
        raise RequestError(shown(said, model.api_key)) from error
    _note_name(completion.model, model)
    choice = completion.choices[0]
    message, reason = choice.message, choice.finish_reason or "stop"
    content = choice.text if message.content is None else message.content
    thinking = message.reasoning or message.reasoning_content or _thinking_in(content)
    text = _text_of(content)
    if message.refusal or HELD_BACK.search(reason):
        raise RefusedPromptError(f"the answer was held back: {message.refusal or reason}")
    if BROKEN_OFF.search(reason):
        raise RequestError(f"the server's answer is unusable: finish_reason {reason}")
    is_cut_off = bool(CUT_OFF.search(reason))
    if content is None and not thinking and not is_cut_off:
        raise RequestError("the server's answer is unusable: it has no content")
    if model.thinking is not None and not thinking:
        thinking, text = model.thinking.split(text)
    prompt_tokens = _count(completion.usage, "prompt_tokens")
    completion_tokens = _count(completion.usage, "completion_tokens")
    finish_reason: Literal["stop", "length"] = "length" if is_cut_off else "stop"
    return Reply(text, finish_reason, prompt_tokens, completion_tokens, thinking)


def _note_name(name: str | None, model: Endpoint) -> None:
    """Warn once about each model that answers in place of the requested one."""
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
    """Replace lone surrogates in JSON, which pydantic refuses, by "?"."""
    with suppress(ValueError, RecursionError):
        return json.dumps(json.loads(body), ensure_ascii=False).encode(errors="replace")
    return body


def status_error(response: httpx2.Response, key: str) -> RequestError:
    status, text = response.status_code, response.text
    said = f"status {status}: {shown(text, key)}"
    if response.is_redirect:
        place = shown(response.headers.get("Location", "elsewhere"), key)
        return RequestError(f"status {status}: it redirects to {place}: give that address itself")
    is_refused = status == 413 or OVERLONG.search(text) or (status < 500 and FILTERED.search(text))
    return (RefusedPromptError if is_refused and status not in (401, 404) else RequestError)(said)


def status_within(body: bytes | bytearray) -> int | None:
    """Return the status of an error that a gateway sends as the body of a 200 response, or
    None."""
    with suppress(ValueError, LookupError, TypeError):
        if error := json.loads(body)["error"]:
            code = str(error["code"]) if isinstance(error, dict) and "code" in error else ""
            is_status = code.isdigit() and 400 <= int(code) < 600
            is_rate = re.search("rate.?limit|quota|too many", str(error), re.IGNORECASE)
            return int(code) if is_status else 429 if is_rate else 500
    return None


def shown(text: str, key: str) -> str:
    """Return the beginning of a server's message, without the API key that it may repeat."""
    secret = key.strip()  # errors show a key's line break in escaped form
    hidden = text if secret in ("", NO_KEY) else text.replace(secret, "***")
    return hidden[:MAX_SHOWN_CHARS]
