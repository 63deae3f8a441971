"""Interaction: agents discuss questions."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from inspect import iscoroutine
from random import Random
from typing import Any

from comas.config.schema import Interaction
from comas.interaction.criticism import CRITICISMS
from comas.interaction.discussion import OpenDiscussion, set_partners
from comas.interaction.schedules import (
    SCHEDULES,
    UNCRITICISED_SCHEDULES,
    Schedule,
)
from comas.types import Discussion, Generate, Question
from comas.utils.concurrency import first_error, run_all

__all__ = [
    "CRITICISMS",
    "SCHEDULES",
    "UNCRITICISED_SCHEDULES",
    "Schedule",
    "hold",
    "open_discussions",
    "run_discussions",
]


async def run_discussions(
    questions: Sequence[Question],
    *,
    generate: Generate,
    num_agents: int,
    rules: Interaction,
    seed: int,
    step: int,
) -> list[Discussion]:
    """Discuss every question of a batch, all discussions at once.

    The result is in the order of ``questions`` (copies of one question side by side); see ``hold``.
    """
    discussions = open_discussions(questions, generate=generate, rules=rules, seed=seed, step=step)
    schedule, rng = SCHEDULES[rules.schedule], Random(f"{seed}/{step}")
    made: Any = schedule(discussions, num_agents=num_agents, rules=rules, rng=rng)
    talks = list(made) if isinstance(made, Iterable) else []
    if len(talks) != len(discussions) or not all(map(iscoroutine, talks)):
        raise ValueError(
            f"interaction.schedule={rules.schedule}: of {len(discussions)} discussions it made "
            f"{type(made).__name__}; let it return a list with a coroutine for each"
        )
    return await hold(discussions, talks)


def open_discussions(
    questions: Sequence[Question], *, generate: Generate, rules: Interaction, seed: int, step: int
) -> list[OpenDiscussion]:
    """Open ``interaction.prompt_reuse`` independent discussions of every question of a batch."""
    discussions = [
        OpenDiscussion(
            question,
            discussion_id=f"step{step}/{question.question_id}/copy{copy}",
            seed_text=f"{seed}/{step}/{question.question_id}/{copy}",
            rules=rules,
            generate=generate,
        )
        for question in questions
        for copy in range(rules.prompt_reuse)
    ]
    set_partners(discussions)
    return discussions


async def hold(
    discussions: Sequence[OpenDiscussion], talks: Iterable[Coroutine[None, None, None]]
) -> list[Discussion]:
    """Run what a schedule made of ``discussions``, without any barrier; returns them closed.

    The first error cancels the others.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            for discussion in discussions:
                discussion.tasks = tasks
            await run_all(talks)
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return [discussion.close() for discussion in discussions]
