"""Routes an agent's requests to the rollout engines of its policy."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from comas.engines.cluster.actors import Engine
from comas.engines.cluster.engine_client import EngineClient
from comas.engines.cluster.supervision import LostEngineError
from comas.types import Generation, Request

_MOMENT_S = 0.01

Restart = Callable[[Engine, LostEngineError], Engine]
"""Puts another engine in the place of a lost one, while no request is in flight anywhere; raises
when it cannot."""


def no_restart(engine: Engine, error: LostEngineError) -> Engine:
    """Raise the error of a lost engine."""
    raise error


class Sampler:
    """Sends every request to the least busy engine of the agent's policy.

    When an engine is lost, new requests wait until the other engines have answered theirs and it
    has been replaced; then its unanswered requests are repeated. A response depends only on
    weights, prompt and seed, so the result is the same.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        *,
        policy_of_agent: Sequence[int],
        adapters: Collection[int] = (),
        client_of: Callable[[Engine], EngineClient],
        restart: Restart = no_restart,
    ) -> None:
        """``adapters`` are the policies that are LoRA adapters; ``client_of`` makes an engine's
        client."""
        self._client_of = client_of
        self._restart = restart
        self._policy_of_agent = policy_of_agent
        self._adapters = adapters
        self._set_clients([client_of(engine) for engine in engines])
        self._lost: dict[EngineClient, LostEngineError] = {}
        self._replacing: asyncio.Task[None] | None = None

    async def generate(self, request: Request) -> Generation | None:
        """Sample one response of an agent; None when the prompt is over the prompt limit.

        Raises:
            EngineError: an engine failed, or was lost and could not be replaced.
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
                self._note_lost(client, error)

    def _set_clients(self, clients: list[EngineClient]) -> None:
        self._clients = clients
        self._of_policy: defaultdict[int, list[EngineClient]] = defaultdict(list)
        for client in clients:
            for policy in client.engine.policies:
                self._of_policy[policy].append(client)

    def _least_busy(self, policy: int) -> EngineClient:
        return min(self._of_policy[policy], key=lambda client: client.num_asked)

    def _note_lost(self, client: EngineClient, error: LostEngineError) -> None:
        if client not in self._clients:
            return  # it has been replaced meanwhile
        self._lost.setdefault(client, error)
        if self._replacing is None:
            self._replacing = asyncio.create_task(self._replace_lost())

    async def _replace_lost(self) -> None:
        """Blocks the loop while an engine starts, as there is nothing else for it to do."""
        try:
            while any(c.num_asked for c in self._clients if c not in self._lost):
                await asyncio.sleep(_MOMENT_S)
            while self._lost:
                client = next(iter(self._lost))
                engine = self._restart(client.engine, self._lost[client])
                new = self._client_of(engine)
                self._set_clients([new if c is client else c for c in self._clients])
                del self._lost[client]
        finally:
            self._lost.clear()
            self._replacing = None
