"""The key of an evaluation's own servers, without which nobody on the machine may use them.

Our processes have it from the environment, which other users cannot read, unlike a command line.
"""

import os
import secrets

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

VARIABLE = "COMAS_SERVER_KEY"


def create_key() -> str:
    """A random key, of 256 bits."""
    return secrets.token_urlsafe(32)


def key_headers(key: str) -> dict[str, str]:
    """What a request with this key has in its head."""
    return {"Authorization": f"Bearer {key}"}


class RequireKey:
    """ASGI middleware for vLLM's ``--middleware``: whatever comes without the key gets 401.

    vLLM's own ``--api-key`` guards some paths alone: ``/invocations`` generates without one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._expected = key_headers(os.environ[VARIABLE])["Authorization"].encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what has the key, and the server's own start and end."""
        if scope["type"] in ("http", "websocket"):
            given = Headers(scope=scope).get("Authorization", "").encode()
            if not secrets.compare_digest(given, self._expected):
                await Response(status_code=401)(scope, receive, send)
                return
        await self._app(scope, receive, send)
