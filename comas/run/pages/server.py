"""Serves the page of live runs: on the loopback interface, behind a key in its address."""

import hmac
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from comas.run.pages.live import LiveRun, news_of
from comas.run.pages.page import page_text

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
HOSTS = {HOST, "localhost"}
"""Allowed ``Host`` headers, also through a tunnel. Others come from pages elsewhere whose names
resolve to this machine (DNS rebinding)."""
KEY_BYTES = 24
TIMEOUT_S = 60.0
"""Time limit of a request or an answer, possibly through a slow tunnel."""
ANSWERS = ("", "new", "details")
"""The part of an address after the key."""
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class LiveServer(ThreadingHTTPServer):
    """Answers ``/KEY/`` with the page of ``runs``, ``/KEY/new`` with what came since,
    ``/KEY/details`` with the tokens of a step, and anything else with 404: without the key, other
    users of the machine see nothing. Connections have threads of their own, so none blocks others.

    Raises OSError when ``port`` is taken; 0 chooses a free one.
    """

    daemon_threads = True

    def __init__(self, runs: Sequence[LiveRun], *, port: int = 0) -> None:
        self.runs = runs
        self.key = secrets.token_urlsafe(KEY_BYTES)
        super().__init__((HOST, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log browsers that close a connection as debug messages."""
        log.debug("an answer was not taken", exc_info=True)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/{self.key}/"

    def answer(self, name: str, query: Mapping[str, Sequence[str]]) -> tuple[str, str]:
        """Return (MIME type, text) of one of ``ANSWERS``. Raises ValueError for a wrong query."""
        if name == "":
            return "text/html", page_text([run.source() for run in self.runs])
        if name == "new":
            return "application/json", json.dumps(news_of(self.runs, query.get("have", [])))
        run, step = (int("".join(query.get(name, []))) for name in ("run", "step"))
        if not 0 <= run < len(self.runs):
            raise ValueError(f"there is no run {run}")
        return "application/json", json.dumps(self.runs[run].details(step))


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        under, _, name = path.rpartition("/")
        host = self.headers.get("Host", "").partition(":")[0]
        is_known = hmac.compare_digest(under.encode(), f"/{self.server.key}".encode())
        if host not in HOSTS or not is_known or name not in ANSWERS:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "not found")
            return
        try:
            kind, text = self.server.answer(name, parse_qs(query))
        except (OSError, ValueError) as error:  # a resume may move files away meanwhile
            log.warning("%s", error)
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", "try again")
            return
        self._answer(HTTPStatus.OK, kind, text)

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the lines would hold the key."""
