"""Who answers for an agent: the rollout engines of its policy."""

from collections.abc import Sequence

from comas.engines.cluster.actors import Engine
from comas.engines.cluster.exchange import Exchange
from comas.engines.rollout.messages import Request
from comas.types import Generation, TurnKey


class Sampler:
    """Sends every request to the least busy engine of the agent's policy."""

    def __init__(
        self, engines: Sequence[Engine], *, policy_of_agent: Sequence[int], timeout_s: float
    ) -> None:
        """``timeout_s`` limits the time to each answer (``cluster.call_timeout_s``)."""
        of_policy: dict[int, list[Exchange]] = {}
        for engine in engines:
            of_policy.setdefault(engine.policy, []).append(Exchange(engine, timeout_s=timeout_s))
        self._of_agent = [of_policy[policy] for policy in policy_of_agent]

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
            EngineError: the engine died, failed or exceeded the time limit.
        """
        least_busy = min(self._of_agent[agent_index], key=lambda exchange: exchange.num_asked)
        return await least_busy.ask(Request(prompt, seed, temperature), turn=turn)
