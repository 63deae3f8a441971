"""The driver's side of sampling: sends every request to an engine of its policy."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import ray

from comas.engines.cluster.actors import Engine
from comas.engines.cluster.supervision import (
    HEARTBEAT_TIMEOUT_S,
    TICK_S,
    LostEngineError,
    engine_error,
    said_nothing,
)
from comas.engines.rollout.connection import Connection, Endpoint, Orders, listening, receive, send
from comas.types import Generation, Request
from comas.utils.concurrency import run_all
from comas.utils.progress import tokens_in_flight

_TOGETHER_S = 0.0005
"""Time to collect requests into one message: a fraction of any engine step."""
_MOMENT_S = 0.01

Restart = Callable[[Engine, LostEngineError], Engine]
"""Replaces a lost engine, while no request is in flight anywhere; raises when it cannot."""


class Sampler:
    """Sends every request to the least busy engine of the agent's policy.

    When an engine is lost, new requests wait until the other engines have answered theirs and the
    lost one is replaced; then its unanswered requests are repeated. The result is the same, since a
    response depends only on weights, prompt and seed.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        *,
        policy_of_agent: Sequence[int],
        adapters: Collection[int] = (),
        client_of: Callable[[Engine], EngineClient],
        restart: Restart,
    ) -> None:
        """``adapters`` are the policies that are LoRA adapters."""
        self._client_of = client_of
        self._restart = restart
        self._policy_of_agent = policy_of_agent
        self._adapters = adapters
        self._clients = [client_of(engine) for engine in engines]
        self._replacing: asyncio.Task[None] | None = None

    async def generate(self, request: Request) -> Generation | None:
        """Sample one response of an agent; None when the prompt is over the prompt limit.

        Raises EngineError when an engine fails, or is lost and cannot be replaced.
        """
        policy = self._policy_of_agent[request.agent_index]
        if policy in self._adapters:
            request = request._replace(adapter=policy)
        while True:
            if self._replacing is not None:
                await asyncio.shield(self._replacing)
            client = self._least_busy(policy)
            try:
                return await client.ask(request)
            except LostEngineError as error:
                # If another engine is lost meanwhile, its next request will fail.
                if self._replacing is None and client in self._clients:
                    self._replacing = asyncio.create_task(self._replace(client, error))

    def _least_busy(self, policy: int) -> EngineClient:
        clients = (client for client in self._clients if policy in client.engine.policies)
        return min(clients, key=lambda client: client.num_asked)

    async def _replace(self, lost: EngineClient, error: LostEngineError) -> None:
        """Replace ``lost``; blocks the event loop, which has nothing else to do."""
        try:
            while any(client.num_asked for client in self._clients):
                await asyncio.sleep(_MOMENT_S)
            new = self._client_of(self._restart(lost.engine, error))
            self._clients[self._clients.index(lost)] = new
        finally:
            self._replacing = None


class _Asked(NamedTuple):
    doing: str
    """For messages: "generating d r0.s0"."""
    answer: asyncio.Future[Generation | None]
    at_s: float
    """Time on the client's own clock."""


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
        check_ray: Callable[[], None] = lambda: None,
    ) -> None:
        """The engine connects to ``address``; ``check_ray`` raises LostEngineError when Ray is
        gone."""
        self.engine = engine
        self._address = address
        self._check_ray = check_ray
        self._numbers = itertools.count()
        self._asked: dict[int, _Asked] = {}  # oldest first
        self._orders = Orders({}, [])
        self._conversation: asyncio.Task[None] | None = None
        # Seconds counted by this process: time in which it was frozen does not count.
        self._clock_s = self._heard_at_s = 0.0

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
            self._start_conversation()
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        doing = f"generating {' '.join(request.turn)}"
        self._asked[number] = _Asked(doing, answer, self._clock_s)
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

    def _start_conversation(self) -> None:
        self._orders, self._has_orders = Orders({}, []), asyncio.Event()
        self._heard_at_s = self._clock_s
        self._conversation = asyncio.create_task(self._converse())
        self._conversation.add_done_callback(self._fail_all)

    async def _converse(self) -> None:
        """Exchange messages with the engine until the loop ends or the engine fails."""
        async with listening(self._address) as (endpoint, connected):
            await run_all(
                [self._serve(endpoint), self._exchange_messages(connected), self._watch()]
            )

    async def _serve(self, endpoint: Endpoint) -> None:
        await self.engine.call("serve", endpoint)

    async def _exchange_messages(self, connected: asyncio.Future[Connection]) -> None:
        reader, writer = await connected
        try:
            await run_all([self._send_requests(writer), self._receive_answers(reader)])
        finally:
            writer.close()

    async def _send_requests(self, writer: asyncio.StreamWriter) -> None:
        while await self._has_orders.wait():
            await asyncio.sleep(_TOGETHER_S)
            orders, self._orders = self._orders, Orders({}, [])
            self._has_orders.clear()
            await send(writer, orders)

    async def _receive_answers(self, reader: asyncio.StreamReader) -> None:
        while (answers := await receive(reader)) is not None:
            self._heard_at_s = self._clock_s
            if isinstance(answers, int):
                tokens_in_flight[self.engine.name] = answers
                continue
            for number, generation in answers.items():
                asked = self._asked.get(number)
                if asked is not None and not asked.answer.done():  # else cancelled meanwhile
                    asked.answer.set_result(generation)

    async def _watch(self) -> None:
        """Raise LostEngineError when a heartbeat does not come in time."""
        while True:
            await asyncio.sleep(TICK_S)
            self._clock_s += TICK_S
            self._check_ray()
            if self._asked:
                oldest = next(iter(self._asked.values()))
                if self._clock_s - max(self._heard_at_s, oldest.at_s) > HEARTBEAT_TIMEOUT_S:
                    raise said_nothing(self.engine.name, oldest.doing)

    def _fail_all(self, conversation: asyncio.Task[None]) -> None:
        """Fail every waiting request with the error that ended the conversation."""
        tokens_in_flight.pop(self.engine.name, None)
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
