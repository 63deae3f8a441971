"""The schedule of the released code: in each round every agent solves, from the same prompt.

Evaluators and scorers are dealt in each round, so that every agent gets the same number of each in
the batch. From the second round on the prompt shows kappa pairs (solution, evaluation) drawn from
the round before; the evaluator sees no history.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from itertools import product
from random import Random

from comas.config.schema import Interaction
from comas.interaction.criticism import Critics, criticise
from comas.interaction.discussion import OpenDiscussion, Opening, open_all
from comas.interaction.prompts import SOLUTION, HistoryItem
from comas.types import Discussion, Generate, Turn

Pair = tuple[int, int, int]
"""(round, solver, evaluation): names a solution with one evaluation of it."""


def schedule(
    openings: Sequence[Opening],
    *,
    num_agents: int,
    rules: Interaction,
    rng: Random,
    generate: Generate,
) -> list[Coroutine[None, None, Discussion]]:
    """One coroutine per discussion; ``rng`` deals each round's critics over the batch."""
    critics: list[dict[Pair, Critics]] = [{} for _ in openings]
    for round_index in range(rules.num_rounds):
        parts = list(product(critics, range(num_agents), range(rules.num_evaluations)))
        evaluators = deal(rng, num_agents=num_agents, num_parts=len(parts))
        scorers = deal(rng, num_agents=num_agents, num_parts=len(parts))
        for (own, solver, index), *both in zip(parts, evaluators, scorers, strict=True):
            own[round_index, solver, index] = Critics(*both)
    discussions = open_all(openings, generate=generate, rules=rules)
    return [
        _discuss(discussion, own, opening.random(), num_agents=num_agents)
        for discussion, own, opening in zip(discussions, critics, openings, strict=True)
    ]


def deal(rng: Random, *, num_agents: int, num_parts: int) -> list[int]:
    """Who plays each of ``num_parts`` parts: at random, but every agent equally often (to
    within one).

    Example: 3 agents, 6 parts: a shuffle of ``[0, 0, 1, 1, 2, 2]``.
    """
    full_rounds, rest = divmod(num_parts, num_agents)
    agents = list(range(num_agents)) * full_rounds + rng.sample(range(num_agents), rest)
    rng.shuffle(agents)
    return agents


async def _discuss(
    discussion: OpenDiscussion, critics: dict[Pair, Critics], rng: Random, *, num_agents: int
) -> Discussion:
    rules = discussion.rules
    shown_pairs = _draw_references(rng, list(critics), rules=rules)
    judged: dict[Pair, asyncio.Task[HistoryItem | None]] = {}

    async def judge(pair: Pair, solving: asyncio.Task[Turn | None]) -> HistoryItem | None:
        solution = await solving
        if solution is None:
            return None
        return await criticise(
            discussion, solution, critics[pair], index=pair[2], history=(), scorings=tasks
        )

    async with asyncio.TaskGroup() as tasks:
        for round_index in range(rules.num_rounds):
            # Only the drawn pairs are waited for: the others may still be evaluated meanwhile.
            shown = [await judged[pair] for pair in shown_pairs[round_index]]
            history = [item for item in shown if item is not None]
            for solver in range(num_agents):
                solving = tasks.create_task(
                    discussion.ask(
                        "solution",
                        solver,
                        SOLUTION,
                        round_index=round_index,
                        index=solver,
                        history=history,
                    )
                )
                for index in range(rules.num_evaluations):
                    pair = (round_index, solver, index)
                    judged[pair] = tasks.create_task(judge(pair, solving))
    return discussion.close()


def _draw_references(rng: Random, pairs: Sequence[Pair], *, rules: Interaction) -> list[list[Pair]]:
    """For each round, the pairs of the round before that its prompt shows, in order."""
    references: list[list[Pair]] = [[]]
    for round_index in range(1, rules.num_rounds):
        before = [pair for pair in pairs if pair[0] == round_index - 1]
        references.append(sorted(rng.sample(before, min(rules.horizon, len(before)))))
    return references
