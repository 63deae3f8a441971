"""Debates without criticism, the schedule of the baseline MAPoRL."""

from collections.abc import Coroutine, Sequence
from random import Random

from comas.config.schema import Interaction
from comas.interaction.discussion import OpenDiscussion
from comas.interaction.prompts import SOLUTION, HistoryItem
from comas.types import Turn
from comas.utils.concurrency import run_all


def debate(
    discussions: Sequence[OpenDiscussion], *, num_agents: int, rules: Interaction, rng: Random
) -> list[Coroutine[None, None, None]]:
    """In each round every agent answers. From the second round on, it sees its own previous answer
    and those of up to kappa others, drawn for every agent and round."""
    return [_argue(discussion, num_agents=num_agents) for discussion in discussions]


def draw_seen(rng: Random, agent: int, *, num_agents: int, num_others: int) -> list[int]:
    """Draw the agents whose answers ``agent`` sees: some others, and last itself, never dropped."""
    others = [other for other in range(num_agents) if other != agent]
    return [*sorted(rng.sample(others, min(num_others, len(others)))), agent]


async def _argue(discussion: OpenDiscussion, *, num_agents: int) -> None:
    answers: list[Turn | None] = [None] * num_agents

    def ask(agent: int, round_index: int) -> Coroutine[None, None, Turn | None]:
        seen = draw_seen(
            discussion.rng, agent, num_agents=num_agents, num_others=discussion.rules.horizon
        )
        heard = [(other, answers[other]) for other in seen]
        history = [HistoryItem(a.text, None, is_own=o == agent) for o, a in heard if a is not None]
        return discussion.ask(
            "solution", agent, SOLUTION, round_index=round_index, index=agent, history=history
        )

    for round_index in range(discussion.rules.num_rounds):
        answers = await run_all([ask(agent, round_index) for agent in range(num_agents)])
