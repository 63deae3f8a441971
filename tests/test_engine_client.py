"""The driver's side of a rollout engine: batches, answers, cancelling, limits, failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from builders import request
from ray.exceptions import ActorDiedError

from comas.config.schema import Cluster
from comas.engines.cluster.engine_client import EngineClient
from comas.engines.cluster.sampler import Sampler
from comas.engines.cluster.supervision import LostEngineError
from comas.engines.rollout.connection import Endpoint, Orders, receive, send
from comas.types import Generation, Request

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
        self.policies = (policy,)
        self.orders: list[Orders] = []
        self.num_conversations = 0
        self._answer = answer
        self._error = error

    def call(self, method: str, endpoint: Endpoint) -> Awaitable[None]:
        assert method == "serve"
        return self._serve(endpoint)

    async def _serve(self, endpoint: Endpoint) -> None:
        self.num_conversations += 1
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.write(endpoint.password)
        while orders := await receive(reader):
            self.orders.append(orders)
            if self._error is not None:
                raise self._error
            if self._answer is not None:
                kept = orders.requests.keys() - orders.cancelled
                await send(writer, {n: self._answer(n, orders.requests[n]) for n in sorted(kept)})
        writer.close()


def client_of(engine: ScriptedEngine, **limits: float) -> EngineClient:
    return EngineClient(engine, cluster=Cluster(**limits))  # type: ignore[arg-type]


async def ask_all(client: EngineClient, *prompts: str) -> list[Any]:
    return await asyncio.gather(
        *(client.ask(request(prompt, turn_id=f"r{i}.s0")) for i, prompt in enumerate(prompts)),
        return_exceptions=True,
    )


def test_requests_of_one_moment_go_in_one_message_and_each_gets_its_answer():
    engine = ScriptedEngine()
    client = client_of(engine)
    answers = asyncio.run(ask_all(client, "a", "overlong", "b"))
    assert answers == [spoken("a"), None, spoken("b")]
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


def test_no_answer_within_the_limit_is_an_error_that_names_engine_and_turn():
    client = client_of(ScriptedEngine(answer=None), call_timeout_s=0.1)
    [error] = asyncio.run(ask_all(client, "a"))
    assert isinstance(error, LostEngineError)
    assert str(error).startswith("rollout engine 0 of policy 0 did not answer d r0.s0 within 0 s")
    assert "cluster.call_timeout_s" in str(error)


def test_the_limit_counts_from_when_a_request_was_asked():
    client = client_of(ScriptedEngine(), call_timeout_s=0.4)

    async def scenario() -> list[Any]:
        answers = []
        for _ in range(6):
            answers += await ask_all(client, "a")
            await asyncio.sleep(0.1)
        return answers

    assert asyncio.run(scenario()) == [spoken("a")] * 6


class BeatingEngine(ScriptedEngine):
    """Gives ``num_heartbeats`` signs of life, 0.05 s apart, and then the answer, if it has one."""

    def __init__(self, *, num_heartbeats: int, answer: Answer | None) -> None:
        super().__init__()
        self._num_heartbeats = num_heartbeats
        self._last_answer = answer

    async def _serve(self, endpoint: Endpoint) -> None:
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.write(endpoint.password)
        orders = await receive(reader)
        for _ in range(self._num_heartbeats):
            await asyncio.sleep(0.05)
            await send(writer, {})
        if self._last_answer is not None:
            asked = orders.requests.items()
            await send(writer, {number: self._last_answer(number, own) for number, own in asked})
        await receive(reader)
        writer.close()


def test_an_engine_that_gives_no_sign_of_life_is_lost_long_before_its_time_limit():
    client = client_of(BeatingEngine(num_heartbeats=4, answer=None), heartbeat_timeout_s=0.1)
    [error] = asyncio.run(ask_all(client, "a"))
    assert isinstance(error, LostEngineError)
    assert "gave no sign of life for 0 s while generating d r0.s0" in str(error)
    assert "cluster.heartbeat_timeout_s" in str(error)


def test_signs_of_life_let_an_answer_take_longer_than_their_limit():
    client = client_of(BeatingEngine(num_heartbeats=12, answer=echo), heartbeat_timeout_s=0.3)
    assert asyncio.run(ask_all(client, "a")) == [spoken("a")]


def test_silence_while_nobody_asks_is_no_silence():
    client = client_of(ScriptedEngine(), heartbeat_timeout_s=0.1)

    async def scenario() -> list[Any]:
        before = await ask_all(client, "a")
        await asyncio.sleep(0.4)
        return before + await ask_all(client, "b")

    assert asyncio.run(scenario()) == [spoken("a"), spoken("b")]


def test_a_lost_ray_is_noticed_while_answers_are_waited_for():
    def check() -> None:
        raise LostEngineError("Ray is lost")

    engine = ScriptedEngine(answer=None)
    cluster = Cluster(heartbeat_timeout_s=0.4)
    client = EngineClient(engine, cluster=cluster, check_ray=check)  # type: ignore[arg-type]
    [error] = asyncio.run(ask_all(client, "a"))
    assert str(error) == "Ray is lost"


def test_a_dead_engine_fails_every_waiting_request_by_the_turn_s_own_name():
    client = client_of(ScriptedEngine(error=ActorDiedError()))
    errors = asyncio.run(ask_all(client, "a", "b"))
    assert [type(error) for error in errors] == [LostEngineError, LostEngineError]
    for turn, error in zip(("r0.s0", "r1.s0"), errors, strict=True):
        assert f"rollout engine 0 of policy 0 failed while generating d {turn}: " in str(error)
        assert isinstance(error.__cause__, ActorDiedError)
    # Whoever asks afterwards hears of it as well.
    assert isinstance(asyncio.run(ask_all(client, "c"))[0], LostEngineError)


def test_whoever_does_not_know_the_password_is_turned_away():
    class Impostor(ScriptedEngine):
        def call(self, method: str, endpoint: Endpoint) -> Awaitable[None]:
            return self._intrude(endpoint)

        async def _intrude(self, endpoint: Endpoint) -> None:
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.write(b"x" * len(endpoint.password))
            assert await reader.read() == b""  # closed by the driver, which has sent nothing
            writer.close()
            await self._serve(endpoint)

    assert asyncio.run(ask_all(client_of(Impostor()), "a")) == [spoken("a")]


def test_a_stranger_who_says_nothing_holds_up_no_end():
    """From Python 3.12 on, a server waits for whoever is still connected."""

    class Visited(ScriptedEngine):
        def call(self, method: str, endpoint: Endpoint) -> Awaitable[None]:
            return self._be_lost(endpoint)

        async def _be_lost(self, endpoint: Endpoint) -> None:
            self.stranger, self.writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            raise ActorDiedError()

    async def ask() -> bytes:
        [error] = await ask_all(client_of(engine), "a")
        assert isinstance(error, LostEngineError)
        return await asyncio.wait_for(engine.stranger.read(), timeout=20)

    engine = Visited()
    assert asyncio.run(ask()) == b""  # it was cut off


def sampler_of(
    engines: Sequence[ScriptedEngine], *, policy_of_agent: Sequence[int], **named: Any
) -> Sampler:
    return Sampler(
        engines,  # type: ignore[arg-type]
        policy_of_agent=policy_of_agent,
        client_of=partial(EngineClient, cluster=Cluster()),
        **named,
    )


def test_what_a_lost_engine_left_unanswered_is_asked_of_the_one_in_its_place():
    def dies_at_third(number: int, request: Request) -> Generation | None:
        if number == 2:
            raise ActorDiedError()
        return echo(number, request)

    lost, sound = ScriptedEngine(answer=dies_at_third), ScriptedEngine(policy=1)
    replacement = ScriptedEngine()
    replaced = []

    def restart(engine: Any, error: LostEngineError) -> Any:
        assert all(client.num_asked == 0 for client in sampler._clients)
        replaced.append((engine, str(error)))
        return replacement

    sampler = sampler_of([lost, sound], policy_of_agent=[0, 1], restart=restart)

    async def ask() -> list[Generation | None]:
        said = [await sampler.generate(request(f"early {i}", turn_id=f"r{i}.s0")) for i in range(2)]
        return said + await asyncio.gather(
            *(
                sampler.generate(request(f"late {agent}", agent=agent, turn_id=f"r2.s{agent}"))
                for agent in (0, 0, 1)
            )
        )

    assert asyncio.run(ask()) == [
        spoken(text) for text in ("early 0", "early 1", "late 0", "late 0", "late 1")
    ]
    [(engine, error)] = replaced
    assert engine is lost
    assert error.startswith("rollout engine 0 of policy 0 failed while generating d r2.s0: ")
    assert [len(orders.requests) for orders in replacement.orders] == [2]
    assert len(sound.orders) == 1


def test_an_engine_that_cannot_be_replaced_fails_whoever_waits_for_it():
    def give_up(engine: Any, error: LostEngineError) -> Any:
        raise RuntimeError("too often")

    sampler = sampler_of(
        [ScriptedEngine(error=ActorDiedError())], policy_of_agent=[0], restart=give_up
    )

    async def ask() -> list[Any]:
        asked = (sampler.generate(request("a", turn_id=f"r{i}.s0")) for i in range(3))
        return await asyncio.gather(*asked, return_exceptions=True)

    for _ in range(2):
        assert [str(error) for error in asyncio.run(ask())] == ["too often"] * 3


def test_an_agent_s_requests_go_to_the_least_busy_engine_of_its_policy():
    engines = [ScriptedEngine(policy=policy) for policy in (0, 0, 1)]
    sampler = sampler_of(engines, policy_of_agent=[1, 0])

    async def ask() -> list[Generation | None]:
        return await asyncio.gather(
            *(
                sampler.generate(request(f"of agent {agent}", agent=agent, turn_id=f"r{i}.s0"))
                for i, agent in enumerate((0, 1, 1, 1, 1))
            )
        )

    assert asyncio.run(ask()) == [spoken("of agent 0"), *[spoken("of agent 1")] * 4]
    assert [len(engine.orders[0].requests) for engine in engines] == [2, 2, 1]
