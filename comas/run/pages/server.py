"""Serves the page of runs under way: on the loopback interface, behind a key in its address."""

import hmac
import json
import logging
import secrets
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from comas.run.pages.live import LiveRun, news_of
from comas.run.pages.page import page_text

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
HOSTS = {HOST, "localhost"}
"""Names under which a browser on this machine, or at the end of a tunnel, asks. Any other is a
page elsewhere that had its own name resolved to this machine (DNS rebinding)."""
KEY_BYTES = 24
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class LiveServer(ThreadingHTTPServer):
    """Answers ``/KEY/`` with the page of ``runs``, ``/KEY/new`` with what came since, and anything
    else with 404: who does not know the key, such as another user of the machine, sees nothing.

    Raises OSError when ``port`` is taken; 0 is any that is free.
    """

    daemon_threads = True

    def __init__(self, runs: Sequence[LiveRun], *, port: int = 0) -> None:
        self.runs = runs
        self.key = secrets.token_urlsafe(KEY_BYTES)
        self.reading = threading.Lock()
        super().__init__((HOST, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that went away amid an answer is no error of ours."""
        log.debug("an answer was not taken", exc_info=True)

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{HOST}:{self.server_address[1]}/{self.key}/"


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = 60.0

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        host = self.headers.get("Host", "").partition(":")[0]
        is_page, is_news = (self._is(path, name) for name in ("", "new"))
        if host not in HOSTS or not (is_page or is_news):
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "not found")
            return
        try:
            with self.server.reading:
                if is_news:
                    marks = parse_qs(query).get("have", [])
                    kind, text = "application/json", json.dumps(news_of(self.server.runs, marks))
                else:
                    kind, text = "text/html", page_text([run.source() for run in self.server.runs])
        except (OSError, ValueError) as error:  # as when a resume moves files away meanwhile
            log.warning("%s", error)
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", "try again")
            return
        self._answer(HTTPStatus.OK, kind, text)

    def _is(self, path: str, name: str) -> bool:
        """Whether this is the path of ``name``, in a time that does not tell how much of it is."""
        return hmac.compare_digest(path.encode(), f"/{self.server.key}/{name}".encode())

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
        """Nothing: the lines would hold the key."""
