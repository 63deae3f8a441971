"""Routes an agent's requests to the rollout engines of its policy."""

import asyncio
from collections.abc import Callable, Collection, Sequence

from comas.engines.cluster.actors import Engine
from comas.engines.cluster.exchange import Exchange
from comas.engines.cluster.supervision import LostEngineError
from comas.engines.rollout.connection import Request
from comas.types import Generation, TurnKey

_MOMENT_S = 0.01

Restart = Callable[[Engine, LostEngineError], Engine]
"""Puts another engine in the place of a lost one, while no request is in flight anywhere; raises
when it cannot."""


def no_restart(engine: Engine, error: LostEngineError) -> Engine:
    """Raise the error of a lost engine."""
    raise error


class Sampler:
    """Sends every request to the least busy engine of the agent's policy.

    When an engine is lost, no new request goes out until the others have answered theirs and
    another engine is in its place; then what it left unanswered is asked again. A response
    depends only on weights, prompt and seed, so nobody can tell.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        *,
        policy_of_agent: Sequence[int],
        adapters: Collection[int] = (),
        exchange: Callable[[Engine], Exchange],
        restart: Restart = no_restart,
    ) -> None:
        """``adapters`` are the policies that are LoRA adapters; ``exchange`` opens one with an
        engine."""
        self._exchange = exchange
        self._restart = restart
        self._policy_of_agent = policy_of_agent
        self._adapters = adapters
        self._exchanges = [exchange(engine) for engine in engines]
        self._lost: dict[Exchange, LostEngineError] = {}
        self._replacing: asyncio.Task[None] | None = None

    async def generate(
        self,
        agent_index: int,
        prompt: str,
        *,
        turn: TurnKey,
        seed: int,
        temperature: float | None = None,
    ) -> Generation | None:
        """Sample one response of an agent; None when the prompt is over the prompt limit.

        ``turn`` tells an error's reader what was asked for. ``temperature`` is
        ``rollout.temperature`` unless given.

        Raises:
            EngineError: an engine failed, or was lost and could not be replaced.
        """
        policy = self._policy_of_agent[agent_index]
        adapter = policy if policy in self._adapters else None
        request = Request(prompt, seed, temperature, adapter)
        while True:
            if self._replacing is not None:
                await asyncio.shield(self._replacing)
            exchange = self._least_busy(policy)
            try:
                return await exchange.ask(request, turn=turn)
            except LostEngineError as error:
                self._note_lost(exchange, error)

    def _least_busy(self, policy: int) -> Exchange:
        of_policy = (own for own in self._exchanges if policy in own.engine.policies)
        return min(of_policy, key=lambda exchange: exchange.num_asked)

    def _note_lost(self, exchange: Exchange, error: LostEngineError) -> None:
        if exchange not in self._exchanges:
            return  # it has been replaced meanwhile
        self._lost.setdefault(exchange, error)
        if self._replacing is None:
            self._replacing = asyncio.create_task(self._replace_lost())

    async def _replace_lost(self) -> None:
        """Blocks the loop while an engine starts, as there is nothing else for it to do."""
        try:
            while any(own.num_asked for own in self._exchanges if own not in self._lost):
                await asyncio.sleep(_MOMENT_S)
            while self._lost:
                exchange = next(iter(self._lost))
                engine = self._restart(exchange.engine, self._lost[exchange])
                self._exchanges[self._exchanges.index(exchange)] = self._exchange(engine)
                del self._lost[exchange]
        finally:
            self._lost.clear()
            self._replacing = None
