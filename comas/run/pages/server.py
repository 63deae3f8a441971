"""Serves the page of live runs: on the loopback interface, behind a key in its address."""

import json
import logging
import secrets
import socket
from collections.abc import Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from comas.run.pages.live import LiveRun, news_of
from comas.run.pages.page import page_text

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
JSON = "application/json"  # in ASCII: half a surrogate pair breaks Starlette's own
HEADERS = [
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
]


class LiveServer(uvicorn.Server):
    """Answers ``/KEY/`` with the page of ``runs``, ``/KEY/new`` with what came since,
    ``/KEY/details`` with the tokens of a step, and anything else with 404: without the key, other
    users of the machine see nothing. Raises OSError when ``port`` is taken; 0 chooses a free one.
    ``run(sockets=[server.socket])`` serves until Ctrl-C, or until ``should_exit`` is set.
    """

    def __init__(self, runs: Sequence[LiveRun], *, port: int = 0) -> None:
        self.runs, self.key = runs, secrets.token_urlsafe(24)
        self.socket = socket.create_server((HOST, port))
        host, self.port = self.socket.getsockname()
        self.address = f"http://{host}:{self.port}/{self.key}/"
        answers = {"": self._page, "new": self._news, "details": self._details}
        application = Starlette(
            routes=[Route(f"/{self.key}/{name}", answer) for name, answer in answers.items()],
            # Other hosts are pages elsewhere whose names resolve to this machine (DNS rebinding).
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])],
            exception_handlers=dict.fromkeys((OSError, ValueError, LookupError), _ask_again),
        )
        application.router.redirect_slashes = False
        config = uvicorn.Config(application, lifespan="off", log_config=None, access_log=False)
        config.headers = HEADERS
        config.timeout_graceful_shutdown = 1  # seconds, for whoever takes no answer
        super().__init__(config)

    # Not coroutines: each has a thread, so none blocks others.
    def _page(self, _: Request) -> Response:
        return HTMLResponse(page_text([run.source() for run in self.runs]))

    def _news(self, request: Request) -> Response:
        news = news_of(self.runs, request.query_params.getlist("have"))
        return Response(json.dumps(news), media_type=JSON)

    def _details(self, request: Request) -> Response:
        run, step = (int(request.query_params[name]) for name in ("run", "step"))
        return Response(json.dumps(self.runs[run].details(step)), media_type=JSON)


def _ask_again(_: Request, error: Exception) -> Response:
    """Answer where a resume may have moved files away meanwhile, and to a wrong query."""
    log.warning("%s", error)
    return PlainTextResponse("try again", 503)
