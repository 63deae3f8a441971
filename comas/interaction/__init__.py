"""Interaction: agents discuss questions. A new schedule is one file and one line here."""

from collections.abc import Coroutine, Sequence
from random import Random
from typing import Protocol

from comas.config.schema import Interaction
from comas.interaction import debate, parallel, sequential
from comas.interaction.criticism import CRITICISMS
from comas.interaction.discussion import Opening
from comas.types import Discussion, Generate, Question
from comas.utils.concurrency import run_all


class Schedule(Protocol):
    """Turns the openings of a batch into one coroutine per discussion."""

    def __call__(
        self,
        openings: Sequence[Opening],
        *,
        num_agents: int,
        rules: Interaction,
        rng: Random,
        generate: Generate,
    ) -> list[Coroutine[None, None, Discussion]]: ...


__all__ = [
    "CRITICISMS",
    "SCHEDULES",
    "UNCRITICISED_SCHEDULES",
    "Schedule",
    "open_discussions",
    "run_discussions",
]

SCHEDULES: dict[str, Schedule] = {
    "sequential": sequential.schedule,
    "parallel": parallel.schedule,
    "debate": debate.schedule,
}

UNCRITICISED_SCHEDULES = frozenset({"debate"})
"""Schedules in which nobody criticises: ``interaction.criticism`` has to be none."""


def open_discussions(
    questions: Sequence[Question], *, prompt_reuse: int, seed: int, step: int
) -> list[Opening]:
    """Open ``prompt_reuse`` independent discussions of every question of a step's batch."""
    return [
        Opening(
            discussion_id=f"step{step}/{question.question_id}/copy{copy}",
            question=question,
            seed_text=f"{seed}/{step}/{question.question_id}/{copy}",
        )
        for question in questions
        for copy in range(prompt_reuse)
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
    """Discuss every question of a batch, all discussions at once and without any barrier.

    The result is in the order of ``questions`` (copies of one question side by side). The first
    error cancels the others.
    """
    openings = open_discussions(questions, prompt_reuse=rules.prompt_reuse, seed=seed, step=step)
    return await run_all(
        SCHEDULES[rules.schedule](
            openings,
            num_agents=num_agents,
            rules=rules,
            rng=Random(f"{seed}/{step}"),
            generate=generate,
        )
    )
