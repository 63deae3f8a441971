"""The driver's side of rollout engines: batches, answers, cancelling, limits, lost engines."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

from builders import request
from ray.exceptions import ActorDiedError

from comas.engines.cluster import engine_client
from comas.engines.cluster.engine_client import EngineClient
from comas.engines.cluster.supervision import LostEngineError
from comas.engines.rollout.connection import Endpoint, Orders, receive, send
from comas.types import Generation, Request

Answer = Callable[[int, Request], Generation | None]
NAME = "rollout engine 0 of policy 0"


def spoken(text: str) -> Generation:
    return Generation((1,), (2,), text, (0.0,), "stop", 0)


def echo(number: int, asked: Request) -> Generation | None:
    return None if asked.prompt == "overlong" else spoken(asked.prompt)


class ScriptedEngine:
    """In place of the actor: answers each message."""

    def __init__(self, *, answer: Answer | None = echo) -> None:
        self.name = NAME
        self.orders: list[Orders] = []
        self._answer = answer

    def call(self, method: str, endpoint: Endpoint) -> Awaitable[None]:
        assert method == "serve"
        return self.serve(endpoint)

    async def serve(self, endpoint: Endpoint) -> None:
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.write(endpoint.password)
        while orders := await receive(reader):
            self.orders.append(orders)
            if self._answer is not None:
                kept = orders.requests.keys() - orders.cancelled
                await send(writer, {n: self._answer(n, orders.requests[n]) for n in sorted(kept)})
        writer.close()


def client_of(engine: ScriptedEngine, **named: Any) -> EngineClient:
    return EngineClient(engine, **named)  # type: ignore[arg-type]


async def ask_all(client: EngineClient, *prompts: str) -> list[Any]:
    asked = (client.ask(request(prompt, turn_id=f"r{i}.s0")) for i, prompt in enumerate(prompts))
    return await asyncio.gather(*asked, return_exceptions=True)


def test_requests_of_one_moment_go_in_one_message_and_each_gets_its_answer():
    engine = ScriptedEngine()
    client = client_of(engine)
    assert asyncio.run(ask_all(client, "a", "overlong", "b")) == [spoken("a"), None, spoken("b")]
    assert [list(orders.requests.values()) for orders in engine.orders] == [
        [request(text, turn_id=f"r{i}.s0") for i, text in enumerate(("a", "overlong", "b"))]
    ]
    assert client.num_asked == 0


def test_a_cancelled_request_is_told_and_the_others_are_answered():
    engine = ScriptedEngine(answer=None)
    client = client_of(engine)

    async def scenario() -> None:
        task = asyncio.create_task(ask_all(client, "a"))
        asked = asyncio.create_task(client.ask(request("b")))
        while not engine.orders:
            await asyncio.sleep(0.001)
        asked.cancel()
        while len(engine.orders) < 2:
            await asyncio.sleep(0.001)
        [number] = [n for n, r in engine.orders[0].requests.items() if r.prompt == "b"]
        assert engine.orders[1] == Orders({}, [number])
        assert client.num_asked == 1
        task.cancel()

    asyncio.run(scenario())


def test_an_engine_that_is_asked_and_gives_no_answer_is_lost(monkeypatch):
    monkeypatch.setattr(engine_client, "TICK_S", 0.05)
    [error] = asyncio.run(ask_all(client_of(ScriptedEngine(answer=None), timeout_s=0.3), "a"))
    assert isinstance(error, LostEngineError)
    assert f"{NAME} gave no answer for 0 s while generating d r0.s0" in str(error)
    client = client_of(ScriptedEngine(), timeout_s=0.3)

    async def scenario() -> list[Any]:
        before = await ask_all(client, "a")
        await asyncio.sleep(0.5)  # with nothing asked
        return before + await ask_all(client, "b")

    assert asyncio.run(scenario()) == [spoken("a"), spoken("b")]


def test_a_connection_that_ends_is_noticed_at_once():
    class CutOff(ScriptedEngine):
        async def serve(self, endpoint: Endpoint) -> None:
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.write(endpoint.password)
            await receive(reader)
            writer.close()

    [error] = asyncio.run(ask_all(client_of(CutOff()), "a"))
    assert isinstance(error, LostEngineError) and "was cut off while generating" in str(error)


def test_a_lost_ray_is_noticed_while_answers_are_waited_for(monkeypatch):
    monkeypatch.setattr(engine_client, "TICK_S", 0.05)

    def check() -> None:
        raise LostEngineError("Ray is lost")

    [error] = asyncio.run(ask_all(client_of(ScriptedEngine(answer=None), check_ray=check), "a"))
    assert str(error) == "Ray is lost"


def test_a_dead_engine_fails_every_waiting_request_by_the_turn_s_own_name():
    client = client_of(ScriptedEngine(answer=Mock(side_effect=ActorDiedError())))
    errors = asyncio.run(ask_all(client, "a", "b"))
    assert [type(error) for error in errors] == [LostEngineError, LostEngineError]
    for turn, error in zip(("r0.s0", "r1.s0"), errors, strict=True):
        assert f"{NAME} failed while generating d {turn}: " in str(error)
        assert isinstance(error.__cause__, ActorDiedError)
    # Later requests fail as well.
    assert isinstance(asyncio.run(ask_all(client, "c"))[0], LostEngineError)


def test_whoever_does_not_know_the_password_is_turned_away():
    class Impostor(ScriptedEngine):
        async def serve(self, endpoint: Endpoint) -> None:
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.write(b"x" * len(endpoint.password))
            assert await reader.read() == b""  # closed by the driver, which has sent nothing
            writer.close()
            await super().serve(endpoint)

    assert asyncio.run(ask_all(client_of(Impostor()), "a")) == [spoken("a")]
