"""The driver's side of sampling: sends requests to an engine, and awaits its answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import NamedTuple

import ray

from comas.engines.cluster.actors import Engine
from comas.engines.cluster.supervision import TICK_S, LostEngineError, engine_error
from comas.engines.rollout.connection import Connection, Endpoint, Orders, listening, receive, send
from comas.types import Generation, Request
from comas.utils.concurrency import run_all

_TOGETHER_S = 0.0005
"""Time to collect requests into one message: a fraction of any engine step."""


class _Asked(NamedTuple):
    doing: str
    """Description for messages: "generating d r0.s0"."""
    answer: asyncio.Future[Generation | None]


class EngineClient:
    """Sends requests to one engine and awaits its answers.

    One Ray call, ``RolloutEngine.serve``, lasts as long as the event loop and fails when the engine
    fails. Requests and answers are sent in batches over a connection that the engine opens
    (``comas/engines/rollout/connection.py`` says why).
    """

    def __init__(
        self,
        engine: Engine,
        *,
        address: str = "127.0.0.1",
        timeout_s: float = 3600.0,
        check_ray: Callable[[], None] = lambda: None,
    ) -> None:
        """The engine connects to ``address``, and may let requests wait for ``timeout_s`` without
        any answer; ``check_ray`` raises LostEngineError when Ray is gone."""
        self.engine = engine
        self._address = address
        self._timeout_s = timeout_s
        self._check_ray = check_ray
        self._numbers = itertools.count()
        self._asked: dict[int, _Asked] = {}  # oldest first
        self._orders = Orders({}, [])
        self._conversation: asyncio.Task[None] | None = None
        # Counted by this process: time in which it was frozen does not count.
        self._silent_s = 0.0

    @property
    def num_asked(self) -> int:
        """Requests that have no answer yet."""
        return len(self._asked)

    async def ask(self, request: Request) -> Generation | None:
        """Return the answer; None when the prompt is over the prompt limit. Cancelling also cancels
        the request in the engine.

        Raises EngineError when the engine fails; LostEngineError if a restart may help.
        """
        if self._conversation is None or self._conversation.done():
            self._orders, self._has_orders = Orders({}, []), asyncio.Event()
            self._silent_s = 0.0
            self._conversation = asyncio.create_task(self._converse())
            self._conversation.add_done_callback(self._fail_all)
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._asked[number] = _Asked(f"generating {' '.join(request.turn)}", answer)
        self._orders.requests[number] = request
        self._has_orders.set()
        try:
            return await answer
        except asyncio.CancelledError:
            self._orders.cancelled.append(number)
            self._has_orders.set()
            raise
        finally:
            del self._asked[number]

    async def _converse(self) -> None:
        """Exchange messages with the engine until the loop ends or the engine fails."""
        async with listening(self._address) as (endpoint, connected):
            await run_all(
                [
                    self._serve(endpoint),
                    self._send_requests(connected),
                    self._receive_answers(connected),
                    self._watch(),
                ]
            )

    async def _serve(self, endpoint: Endpoint) -> None:
        await self.engine.call("serve", endpoint)
        raise ConnectionResetError("the connection was lost")

    async def _send_requests(self, connected: asyncio.Future[Connection]) -> None:
        _, writer = await connected
        while await self._has_orders.wait():
            await asyncio.sleep(_TOGETHER_S)
            orders, self._orders = self._orders, Orders({}, [])
            self._has_orders.clear()
            await send(writer, orders)

    async def _receive_answers(self, connected: asyncio.Future[Connection]) -> None:
        reader, _ = await connected
        while (answers := await receive(reader)) is not None:
            self._silent_s = 0.0
            for number, generation in answers.items():
                asked = self._asked.get(number)
                if asked is not None and not asked.answer.done():  # else cancelled meanwhile
                    asked.answer.set_result(generation)

    async def _watch(self) -> None:
        """Raise LostEngineError when no answer comes in time."""
        while True:
            await asyncio.sleep(TICK_S)
            self._check_ray()
            self._silent_s = self._silent_s + TICK_S if self._asked else 0.0
            if self._silent_s > self._timeout_s:
                oldest = next(iter(self._asked.values()))
                raise LostEngineError(
                    f"{self.engine.name} gave no answer for {self._timeout_s:.0f} s while "
                    f"{oldest.doing}. If responses really take longer, raise cluster.call_timeout_s"
                )

    def _fail_all(self, conversation: asyncio.Task[None]) -> None:
        """Fail every waiting request with the error that ended the conversation."""
        error = None if conversation.cancelled() else conversation.exception()
        for asked in self._asked.values():
            if error is not None and not asked.answer.done():
                asked.answer.set_exception(self._named(error, asked.doing))

    def _named(self, error: BaseException, doing: str) -> BaseException:
        if isinstance(error, ray.exceptions.RayError):
            named = engine_error(self.engine.name, doing, error)
        elif isinstance(error, OSError):  # the connection broke
            named = LostEngineError(f"{self.engine.name} was cut off while {doing}: {error}")
        else:
            return error
        named.__cause__ = error
        return named
