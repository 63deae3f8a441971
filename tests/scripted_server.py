"""An OpenAI-compatible server whose model follows a script. It speaks real HTTP, from a thread, and
can fail as servers do."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Self

from aiohttp import web
from aiohttp.test_utils import TestServer
from anyio.from_thread import start_blocking_portal

Body = dict[str, Any]
"""The JSON of a request."""

Fault = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Replaces a reply."""

LIMIT_S = 300
"""Of a start, a cleanup and a wait."""


class ScriptedServer:
    """A context manager that serves ``model``, request -> reply, at ``base_url``.

    ``fault_of`` returns the fault of a request, given how often it was made before. Each reply
    takes ``delay_s``, and waits until ``gather`` requests are in flight.
    """

    def __init__(self, model, *, fault_of=lambda body, attempt: None, delay_s=0.0, gather=1):
        self.requests: list[Body] = []
        self.headers: list[dict[str, str]] = []
        """Of these requests, and of requests for the list of models."""
        self.listing: Body | None = {"data": [{"id": "scripted"}]}
        """The list of models; None for a server without one."""
        self.max_in_flight = 0
        self._num_in_flight = 0
        self._model = model
        self._fault_of = fault_of
        self._delay_s = delay_s
        self._gather = gather
        self._are_gathered = asyncio.Event()
        self._attempts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            portal.start_task_soon(self._start).result(LIMIT_S)
            stack.callback(lambda: portal.start_task_soon(self._server.close).result(LIMIT_S))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait_for_requests(self, count: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while len(self.requests) < count:
            assert time.monotonic() < deadline, f"{len(self.requests)} of {count} requests came"
            time.sleep(0.002)

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/v1/models", self._list)
        self._server = TestServer(app)
        await self._server.start_server(shutdown_timeout=0.1)
        self.base_url = str(self._server.make_url("/v1"))

    async def _list(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        return web.json_response(self.listing) if self.listing else web.Response(status=404)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        key = repr(body)
        fault = self._fault_of(body, self._attempts[key])
        self._attempts[key] += 1
        self._num_in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self._num_in_flight)
        try:
            if self._num_in_flight >= self._gather:
                self._are_gathered.set()
            await self._are_gathered.wait()
            await asyncio.sleep(self._delay_s)
            return await fault(request) if fault else completion(self._model(body))
        finally:
            self._num_in_flight -= 1


def completion(text: str) -> web.Response:
    """A reply in OpenAI's format, as far as clients read it."""
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return web.json_response({"choices": [choice], "usage": usage})


def replies(text: str = "", *, content_type: str = "application/json", **more: Any) -> Fault:
    """A reply of any kind, by default with status 200."""

    async def reply(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type=content_type, **more)

    return reply


def status(code: int, message: str = "scripted", **headers: str) -> Fault:
    error = {"error": {"message": message, "type": "scripted", "code": code}}
    return replies(json.dumps(error), status=code, headers=headers)


async def cuts_the_reply_off(request: web.Request) -> web.StreamResponse:
    """A connection that ends in the middle of the reply."""
    response = web.StreamResponse(headers={"content-length": "1000"})
    await response.prepare(request)
    await response.write(b'{"choices": [')
    assert request.transport is not None
    request.transport.abort()
    return response


async def never_replies(request: web.Request) -> web.StreamResponse:
    """A server that is silent until the client gives up."""
    await asyncio.sleep(600)
    return web.Response()
