"""The address and the request options of a served model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from comas.utils.chat import ChatEncoder
from comas.utils.thinking import ThinkingMarks

NO_KEY = "none"


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
    answered_as: set[str] = field(default_factory=set, repr=False, compare=False)
    """Names of models in the replies so far."""


def error_in_address(base_url: str) -> tuple[str, str] | None:
    """Return the error in an endpoint's address and its remedy, without quoting the address, or
    None."""
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
