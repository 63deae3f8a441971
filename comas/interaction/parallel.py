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
from comas.interaction.criticism import Critics, Submission, criticise, draw_scorers
from comas.interaction.discussion import OpenDiscussion
from comas.interaction.prompts import SOLUTION, HistoryItem
from comas.types import Turn

Place = tuple[int, int, int]
"""(round, solver, evaluation): names a solution with one evaluation of it."""


def schedule(
    discussions: Sequence[OpenDiscussion], *, num_agents: int, rules: Interaction, rng: Random
) -> list[Coroutine[None, None, None]]:
    """One coroutine per discussion; ``rng`` deals each round's critics over the batch."""
    critics: list[dict[Place, Critics]] = [{} for _ in discussions]
    for round_index in range(rules.num_rounds):
        parts = list(product(critics, range(num_agents), range(rules.num_evaluations)))
        evaluators = deal(rng, num_agents=num_agents, num_parts=len(parts))
        solvers = [solver for _, solver, _ in parts]
        scorers = deal_scorers(rng, solvers, num_agents=num_agents, rules=rules)
        critics_of = zip(parts, map(Critics, evaluators, scorers), strict=True)
        for (own, solver, index), of_part in critics_of:
            own[round_index, solver, index] = of_part
    return [
        _discuss(discussion, own, num_agents=num_agents)
        for discussion, own in zip(discussions, critics, strict=True)
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


def deal_scorers(
    rng: Random, solvers: Sequence[int], *, num_agents: int, rules: Interaction
) -> list[tuple[int, ...]]:
    """The scorers of a solution by each of ``solvers``: dealt, unless ``interaction.scorers``
    leaves somebody out."""
    if rules.scorers != "any":
        return [draw_scorers(rng, s, num_agents=num_agents, rules=rules) for s in solvers]
    hands = [
        deal(rng, num_agents=num_agents, num_parts=len(solvers)) for _ in range(rules.num_scorings)
    ]
    return list(zip(*hands, strict=True))


async def _discuss(
    discussion: OpenDiscussion, critics: dict[Place, Critics], *, num_agents: int
) -> None:
    rules = discussion.rules
    references = _draw_references(discussion.rng, list(critics), rules=rules)
    criticised: dict[Place, asyncio.Task[HistoryItem | None]] = {}

    async def criticise_at(place: Place, solving: asyncio.Task[Turn | None]) -> HistoryItem | None:
        solution = await solving
        if solution is None:
            return None
        return await criticise(Submission(discussion, solution, critics[place], place[2], ()))

    async with asyncio.TaskGroup() as tasks:
        for round_index in range(rules.num_rounds):
            # Only the drawn ones are waited for: the others may still be evaluated meanwhile.
            shown = [await criticised[place] for place in references[round_index]]
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
                    place = (round_index, solver, index)
                    criticised[place] = tasks.create_task(criticise_at(place, solving))


def _draw_references(
    rng: Random, places: Sequence[Place], *, rules: Interaction
) -> list[list[Place]]:
    """What the prompt of each round shows of the round before, in order."""
    references: list[list[Place]] = [[]]
    for round_index in range(1, rules.num_rounds):
        before = [place for place in places if place[0] == round_index - 1]
        references.append(sorted(rng.sample(before, min(rules.horizon, len(before)))))
    return references
