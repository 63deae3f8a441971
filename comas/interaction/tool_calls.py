"""Parsing of the tool calls that models write."""

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic import AliasChoices, AliasPath, BaseModel, Field, field_validator

from comas.utils.chat import CALL_END, CALL_FORM, CALL_START
from comas.utils.files import errors_in_words

_JSON = json.JSONDecoder(strict=False)
"""Accepts line breaks within strings, as in programs."""


class Call(NamedTuple):
    """A call within a text."""

    start: int
    end: int
    text: str
    """JSON, if it is valid."""


def first_call(text: str, names: Collection[str] = ()) -> Call | None:
    """Return the first call in ``text``: the text between <tool_call> and </tool_call>, or, as
    Llama 3 writes it, a text that is only JSON with the name of a tool."""
    opened = text.find(CALL_START)
    if opened >= 0:
        begin = opened + len(CALL_START)
        closed = text.find(CALL_END, _end_of_json(text, begin))
        return None if closed < 0 else Call(opened, closed + len(CALL_END), text[begin:closed])
    alone = text.strip()
    if alone.startswith("{"):
        with suppress(ValueError, RecursionError):
            if _Named.model_validate(_JSON.decode(alone)).name in names:
                return Call(text.index("{"), len(text), alone)
    return None


def name_and_arguments(call: str) -> tuple[str, Mapping[str, Any]]:
    """Parse the name and arguments of a call. Raises ValueError."""
    try:
        called = _Called.model_validate(_JSON.decode(call))
    except RecursionError as error:
        raise ValueError("the call cannot be read: it is nested too deeply") from error
    except ValueError as error:
        why = errors_in_words(error)
        raise ValueError(f"the call cannot be read: {why}; write {CALL_FORM}") from error
    return called.name, called.arguments


class _Named(BaseModel):
    """Models also write OpenAI's form, ``{"type": "function", "function": {"name": ...}}``."""

    name: str = Field(validation_alias=AliasChoices("name", AliasPath("function", "name")))


class _Called(_Named):
    arguments: dict[str, Any] = Field(
        validation_alias=AliasChoices("arguments", "parameters", AliasPath("function", "arguments"))
    )

    @field_validator("arguments", mode="before")
    @classmethod
    def _decoded(cls, arguments: Any) -> Any:
        """Decode arguments in OpenAI's form, a string of JSON."""
        return _JSON.decode(arguments) if isinstance(arguments, str) else arguments


def _end_of_json(text: str, start: int) -> int:
    """Return the end of the JSON at ``start``, which may hold </tool_call>; ``start`` if none."""
    while text[start : start + 1].isspace():
        start += 1
    with suppress(ValueError, RecursionError):
        return _JSON.raw_decode(text, start)[1]
    return start
