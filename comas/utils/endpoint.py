"""A model behind an address: how it is asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from comas.utils.chat import ChatEncoder
from comas.utils.thinking import ThinkingMarks

NO_KEY = "none"


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
