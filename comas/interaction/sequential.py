"""The schedule of the paper's text: one solution per round, speakers drawn uniformly.

In round i an agent drawn from the l agents proposes the solution s_i, n drawn evaluators evaluate
it, and a drawn scorer weighs each evaluation (section 3 of the paper). Solver and evaluator see
the last kappa rounds; a scoring never enters the history. ``interaction.max_chain_tokens``, which
is not the paper's, leaves the last rounds of a long discussion out.
"""

import asyncio
import math
from collections.abc import Coroutine, Sequence
from random import Random
from typing import NamedTuple

from comas.config.schema import Interaction
from comas.interaction.criticism import Critics, Submission, criticise, draw_scorers
from comas.interaction.discussion import OpenDiscussion
from comas.interaction.prompts import SOLUTION, HistoryItem


class Speakers(NamedTuple):
    """The agents of one round: a solver, and the critics of each evaluation."""

    solver: int
    critics: tuple[Critics, ...]


def schedule(
    discussions: Sequence[OpenDiscussion], *, num_agents: int, rules: Interaction, rng: Random
) -> list[Coroutine[None, None, None]]:
    """One coroutine per discussion; nothing is drawn over the batch."""
    return [_discuss(discussion, num_agents=num_agents) for discussion in discussions]


def draw_speakers(rng: Random, *, num_agents: int, rules: Interaction) -> list[Speakers]:
    """Draw every role of every round uniformly at random, before anything is said."""
    return [
        Speakers(
            solver := rng.randrange(num_agents),
            tuple(
                Critics(
                    rng.randrange(num_agents),
                    draw_scorers(rng, solver, num_agents=num_agents, rules=rules),
                )
                for _ in range(rules.num_evaluations)
            ),
        )
        for _ in range(rules.num_rounds)
    ]


async def _discuss(discussion: OpenDiscussion, *, num_agents: int) -> None:
    rules = discussion.rules
    rounds = draw_speakers(discussion.rng, num_agents=num_agents, rules=rules)
    past_rounds: list[list[HistoryItem]] = []
    for round_index, speakers in enumerate(rounds):
        if discussion.chain_tokens > (rules.max_chain_tokens or math.inf):
            break
        shown = past_rounds[-rules.horizon :] if rules.horizon else []
        history = [item for past in shown for item in past]
        past_rounds.append(await _round(discussion, round_index, speakers, history))


async def _round(
    discussion: OpenDiscussion,
    round_index: int,
    speakers: Speakers,
    history: Sequence[HistoryItem],
) -> list[HistoryItem]:
    """One solution with its evaluations, as later rounds may see them."""
    solution = await discussion.ask(
        "solution", speakers.solver, SOLUTION, round_index=round_index, history=history
    )
    if solution is None:
        return []
    items = await asyncio.gather(
        *(
            criticise(Submission(discussion, solution, critics, index, history))
            for index, critics in enumerate(speakers.critics)
        )
    )
    return [item for item in items if item is not None]
