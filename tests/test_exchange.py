"""The driver's side of a rollout engine: batches, answers, cancelling, limits, failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from comas.engines.cluster.exchange import Exchange
from comas.engines.cluster.sampler import Sampler
from comas.engines.cluster.supervision import EngineError
from comas.engines.rollout.messages import Meeting, Orders, Request, receive, send
from comas.types import Generation

Answer = Callable[[int, Request], Generation | None]


def spoken(text: str) -> Generation:
    return Generation((1,), (2,), text, (0.0,), "stop", 0)


def echo(number: int, request: Request) -> Generation | None:
    return None if request.prompt == "overlong" else spoken(request.prompt)


class ScriptedEngine:
    """Stands for the actor: answers each message of orders with one of answers."""

    def __init__(
        self, *, policy: int = 0, answer: Answer | None = echo, error: Exception | None = None
    ) -> None:
        self.name = f"rollout engine 0 of policy {policy}"
        self.policy = policy
        self.orders: list[Orders] = []
        self.num_conversations = 0
        self._answer = answer
        self._error = error

    def call(self, method: str, meeting: Meeting) -> Awaitable[None]:
        assert method == "serve"
        return self._serve(meeting)

    async def _serve(self, meeting: Meeting) -> None:
        self.num_conversations += 1
        reader, writer = await asyncio.open_connection(meeting.host, meeting.port)
        writer.write(meeting.password)
        while orders := await receive(reader):
            self.orders.append(orders)
            if self._error is not None:
                raise self._error
            if self._answer is not None:
                kept = orders.requests.keys() - orders.cancelled
                await send(writer, {n: self._answer(n, orders.requests[n]) for n in sorted(kept)})
        writer.close()


def exchange_with(engine: ScriptedEngine, *, timeout_s: float = 60.0) -> Exchange:
    return Exchange(engine, timeout_s=timeout_s)  # type: ignore[arg-type]


async def ask_all(exchange: Exchange, *prompts: str) -> list[Any]:
    return await asyncio.gather(
        *(
            exchange.ask(Request(prompt, seed=0), turn=("d", f"r{i}.s0"))
            for i, prompt in enumerate(prompts)
        ),
        return_exceptions=True,
    )


def test_requests_of_one_moment_go_in_one_message_and_each_gets_its_answer():
    engine = ScriptedEngine()
    exchange = exchange_with(engine)
    answers = asyncio.run(ask_all(exchange, "a", "overlong", "b"))
    assert answers == [spoken("a"), None, spoken("b")]
    assert [list(orders.requests.values()) for orders in engine.orders] == [
        [Request("a", 0), Request("overlong", 0), Request("b", 0)]
    ]
    assert exchange.num_asked == 0


def test_one_conversation_lasts_as_long_as_the_loop_and_the_next_loop_has_its_own():
    engine = ScriptedEngine()
    exchange = exchange_with(engine)

    async def ask_twice() -> list[Any]:
        return [*await ask_all(exchange, "a"), *await ask_all(exchange, "b")]

    for num_loops in (1, 2):
        assert asyncio.run(ask_twice()) == [spoken("a"), spoken("b")]
        assert engine.num_conversations == num_loops


def test_a_cancelled_request_is_told_and_the_others_are_answered():
    engine = ScriptedEngine(answer=None)
    exchange = exchange_with(engine)

    async def scenario() -> None:
        task = asyncio.create_task(ask_all(exchange, "a"))
        asked = asyncio.create_task(exchange.ask(Request("b", 0), turn=("d", "r0.s0")))
        while not engine.orders:
            await asyncio.sleep(0.001)
        asked.cancel()
        while len(engine.orders) < 2:
            await asyncio.sleep(0.001)
        [number] = [n for n, r in engine.orders[0].requests.items() if r.prompt == "b"]
        assert engine.orders[1] == Orders({}, [number])
        assert exchange.num_asked == 1
        task.cancel()

    asyncio.run(scenario())


def test_no_answer_within_the_limit_is_an_error_that_names_engine_and_turn():
    exchange = exchange_with(ScriptedEngine(answer=None), timeout_s=0.1)
    [error] = asyncio.run(ask_all(exchange, "a"))
    assert isinstance(error, EngineError)
    assert str(error).startswith("rollout engine 0 of policy 0 did not answer d r0.s0 within 0 s")
    assert "cluster.call_timeout_s" in str(error)


def test_the_limit_counts_for_each_request_from_when_it_was_asked():
    engine = ScriptedEngine(answer=None)
    exchange = exchange_with(engine, timeout_s=0.4)

    async def scenario() -> float:
        early = asyncio.create_task(ask_all(exchange, "a"))
        await asyncio.sleep(0.2)
        late = asyncio.create_task(ask_all(exchange, "b"))
        loop = asyncio.get_running_loop()
        await early
        started = loop.time()
        await late
        return loop.time() - started

    assert asyncio.run(scenario()) > 0.1


def test_a_dead_engine_fails_every_waiting_request_by_the_turn_s_own_name():
    exchange = exchange_with(ScriptedEngine(error=ActorDiedError()))
    errors = asyncio.run(ask_all(exchange, "a", "b"))
    assert [type(error) for error in errors] == [EngineError, EngineError]
    for turn, error in zip(("r0.s0", "r1.s0"), errors, strict=True):
        assert f"rollout engine 0 of policy 0 failed while generating d {turn}: " in str(error)
        assert isinstance(error.__cause__, ActorDiedError)
    # Whoever asks afterwards hears of it as well.
    assert isinstance(asyncio.run(ask_all(exchange, "c"))[0], EngineError)


def test_whoever_does_not_know_the_password_is_turned_away():
    class Impostor(ScriptedEngine):
        def call(self, method: str, meeting: Meeting) -> Awaitable[None]:
            return self._intrude(meeting)

        async def _intrude(self, meeting: Meeting) -> None:
            reader, writer = await asyncio.open_connection(meeting.host, meeting.port)
            writer.write(b"x" * len(meeting.password))
            assert await reader.read() == b""  # closed by the driver, which has sent nothing
            writer.close()
            await self._serve(meeting)

    assert asyncio.run(ask_all(exchange_with(Impostor()), "a")) == [spoken("a")]


def test_an_agent_s_requests_go_to_the_least_busy_engine_of_its_policy():
    engines = [ScriptedEngine(policy=policy) for policy in (0, 0, 1)]
    sampler = Sampler(engines, policy_of_agent=[1, 0], timeout_s=60)  # type: ignore[arg-type]

    async def ask() -> list[Generation | None]:
        return await asyncio.gather(
            *(
                sampler.generate(agent, f"of agent {agent}", turn=("d", f"r{i}.s0"), seed=i)
                for i, agent in enumerate((0, 1, 1, 1, 1))
            )
        )

    assert asyncio.run(ask()) == [spoken("of agent 0"), *[spoken("of agent 1")] * 4]
    assert [len(engine.orders[0].requests) for engine in engines] == [2, 2, 1]


@pytest.mark.parametrize("data", [b"", b"\0\0", b"\0" * 7 + b"\5ab"])
def test_a_connection_that_ends_early_ends_the_messages(data: bytes):
    async def scenario() -> Any:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await receive(reader)

    assert asyncio.run(scenario()) is None
