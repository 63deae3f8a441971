"""The driver's side of rollout engines: batches, answers, cancelling, limits, lost engines."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from builders import request
from ray.exceptions import ActorDiedError

from comas.engines.cluster import sampler as sampling
from comas.engines.cluster.sampler import EngineClient, Sampler
from comas.engines.cluster.supervision import LostEngineError
from comas.engines.rollout.connection import Endpoint, Orders, receive, send
from comas.types import Generation, Request

Answer = Callable[[int, Request], Generation | None]
NAME = "rollout engine 0 of policy 0"


def spoken(text: str) -> Generation:
    return Generation((1,), (2,), text, (0.0,), "stop", 0)


def echo(number: int, asked: Request) -> Generation | None:
    return None if asked.prompt == "overlong" else spoken(asked.prompt)


def die(number: int, asked: Request) -> None:
    raise ActorDiedError()


class ScriptedEngine:
    """In place of the actor: answers each message after ``num_heartbeats``, 0.05 s apart."""

    def __init__(self, *, policy: int = 0, answer: Answer | None = echo, num_heartbeats: int = 0):
        self.name = f"rollout engine 0 of policy {policy}"
        self.policies = (policy,)
        self.orders: list[Orders] = []
        self._answer = answer
        self._num_heartbeats = num_heartbeats

    def call(self, method: str, endpoint: Endpoint) -> Awaitable[None]:
        assert method == "serve"
        return self.serve(endpoint)

    async def serve(self, endpoint: Endpoint) -> None:
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.write(endpoint.password)
        while orders := await receive(reader):
            self.orders.append(orders)
            for _ in range(self._num_heartbeats):
                await asyncio.sleep(0.05)
                await send(writer, 17)
            if self._answer is not None:
                kept = orders.requests.keys() - orders.cancelled
                await send(writer, {n: self._answer(n, orders.requests[n]) for n in sorted(kept)})
        writer.close()


def client_of(engine: ScriptedEngine, **named: Any) -> EngineClient:
    return EngineClient(engine, **named)  # type: ignore[arg-type]


def ask_all(client: EngineClient, *prompts: str) -> Coroutine[None, None, list[Any]]:
    asked = (client.ask(request(prompt, turn_id=f"r{i}.s0")) for i, prompt in enumerate(prompts))
    return gathered(asked)


async def gathered(asked: Any) -> list[Any]:
    return await asyncio.gather(*asked, return_exceptions=True)


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


def test_an_engine_that_is_asked_and_gives_no_sign_of_life_is_lost(monkeypatch):
    monkeypatch.setattr(sampling, "TICK_S", 0.05)
    monkeypatch.setattr(sampling, "HEARTBEAT_TIMEOUT_S", 0.3)
    engine = ScriptedEngine(answer=None, num_heartbeats=4)
    [error] = asyncio.run(ask_all(client_of(engine), "a"))
    assert isinstance(error, LostEngineError)
    assert f"{NAME} gave no sign of life for 120 s while generating d r0.s0" in str(error)
    client = client_of(ScriptedEngine())

    async def scenario() -> list[Any]:
        before = await ask_all(client, "a")
        await asyncio.sleep(0.5)
        return before + await ask_all(client, "b")

    assert asyncio.run(scenario()) == [spoken("a"), spoken("b")]


def test_a_lost_ray_is_noticed_while_answers_are_waited_for(monkeypatch):
    monkeypatch.setattr(sampling, "TICK_S", 0.05)

    def check() -> None:
        raise LostEngineError("Ray is lost")

    client = client_of(ScriptedEngine(answer=None), check_ray=check)
    [error] = asyncio.run(ask_all(client, "a"))
    assert str(error) == "Ray is lost"


def test_a_dead_engine_fails_every_waiting_request_by_the_turn_s_own_name():
    client = client_of(ScriptedEngine(answer=die))
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


def unexpected(engine: Any, error: LostEngineError) -> Any:
    raise error


def sampler_of(engines, *, policy_of_agent, restart=unexpected) -> Sampler:
    return Sampler(
        engines,  # type: ignore[arg-type]
        policy_of_agent=policy_of_agent,
        client_of=EngineClient,
        restart=restart,
    )


def ask_agents(sampler: Sampler, *agents: int) -> list[Any]:
    asked = (
        sampler.generate(request(f"of agent {agent}", agent=agent, turn_id=f"r0.s{i}"))
        for i, agent in enumerate(agents)
    )
    return asyncio.run(gathered(asked))


@pytest.mark.parametrize("num_lost", [1, 2])
def test_what_a_lost_engine_left_unanswered_is_asked_of_the_one_in_its_place(num_lost):
    lost = [ScriptedEngine(policy=policy, answer=die) for policy in range(num_lost)]
    sound = ScriptedEngine(policy=2, num_heartbeats=4)
    new: list[ScriptedEngine] = []
    errors = []

    def restart(engine: Any, error: LostEngineError) -> Any:
        assert engine is lost[len(new)]
        assert all(client.num_asked == 0 for client in sampler._clients)
        errors.append(str(error))
        new.append(ScriptedEngine(policy=engine.policies[0]))
        return new[-1]

    sampler = sampler_of([*lost, sound], policy_of_agent=[0, num_lost - 1, 2], restart=restart)
    assert ask_agents(sampler, 0, 0, 1, 2) == [spoken(f"of agent {i}") for i in (0, 0, 1, 2)]
    for policy, error in enumerate(errors):
        assert error.startswith(f"rollout engine 0 of policy {policy} failed while generating d ")
    assert [len(engine.orders[0].requests) for engine in new] == ([3] if num_lost == 1 else [2, 1])
    assert len(sound.orders) == 1
    assert ask_agents(sampler, 0, 1) == [spoken("of agent 0"), spoken("of agent 1")]


def test_an_engine_that_cannot_be_replaced_fails_whoever_waits_for_it():
    def give_up(engine: Any, error: LostEngineError) -> Any:
        raise RuntimeError("too often")

    sampler = sampler_of([ScriptedEngine(answer=die)], policy_of_agent=[0], restart=give_up)
    for _ in range(2):
        assert [str(error) for error in ask_agents(sampler, 0, 0, 0)] == ["too often"] * 3


def test_an_agent_s_requests_go_to_the_least_busy_engine_of_its_policy():
    engines = [ScriptedEngine(policy=policy) for policy in (0, 0, 1)]
    sampler = sampler_of(engines, policy_of_agent=[1, 0])
    said = ask_agents(sampler, 0, 1, 1, 1, 1)
    assert said == [spoken("of agent 0"), *[spoken("of agent 1")] * 4]
    assert [len(engine.orders[0].requests) for engine in engines] == [2, 2, 1]
