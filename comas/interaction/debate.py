"""The schedule of debates (MAPoRL): in each round every agent answers, and nobody criticises.

From the second round on an agent sees its own answer of the round before, and those of up to kappa
others, drawn anew for every agent and round.
"""

from collections.abc import Coroutine, Sequence
from random import Random

from comas.config.schema import Interaction
from comas.interaction.discussion import OpenDiscussion
from comas.interaction.prompts import SOLUTION, HistoryItem
from comas.utils.concurrency import run_all


def schedule(
    discussions: Sequence[OpenDiscussion], *, num_agents: int, rules: Interaction, rng: Random
) -> list[Coroutine[None, None, None]]:
    """One coroutine per discussion; nothing is drawn over the batch."""
    return [_discuss(discussion, num_agents=num_agents) for discussion in discussions]


def draw_seen(rng: Random, agent: int, *, num_agents: int, num_others: int) -> list[int]:
    """Whose answers ``agent`` sees: some others', in order, then its own.

    The own one is last, as an overlong prompt loses what is first.
    """
    others = [other for other in range(num_agents) if other != agent]
    return [*sorted(rng.sample(others, min(num_others, len(others)))), agent]


async def _discuss(discussion: OpenDiscussion, *, num_agents: int) -> None:
    rules = discussion.rules
    # Drawn before anything is said, so that no order of completion can change it.
    seen = [
        [
            draw_seen(discussion.rng, a, num_agents=num_agents, num_others=rules.horizon)
            for a in range(num_agents)
        ]
        for _ in range(rules.num_rounds)
    ]

    async def argue(agent: int) -> None:
        for round_index in range(rules.num_rounds):
            history = []
            for other in seen[round_index][agent] if round_index else []:
                answer = await discussion.hear(f"r{round_index - 1}.s{other}")
                if answer is not None:
                    history.append(HistoryItem(answer.text, None, is_own=other == agent))
            await discussion.ask(
                "solution", agent, SOLUTION, round_index=round_index, index=agent, history=history
            )

    await run_all(argue(agent) for agent in range(num_agents))
