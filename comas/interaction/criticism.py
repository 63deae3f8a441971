"""What both schedules do with a solution: somebody criticises it, somebody scores the criticism."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from comas.interaction.discussion import OpenDiscussion
from comas.interaction.prompts import EVALUATION, SCORING, HistoryItem
from comas.types import Turn


class Critics(NamedTuple):
    """Who evaluates a solution, and who scores that evaluation."""

    evaluator: int
    scorer: int


async def criticise(
    discussion: OpenDiscussion,
    solution: Turn,
    critics: Critics,
    *,
    index: int,
    history: Sequence[HistoryItem],
    scorings: asyncio.TaskGroup,
) -> HistoryItem | None:
    """Have ``solution`` evaluated for the ``index``-th time, with ``history`` in sight.

    The scoring starts as soon as the evaluation is there, in ``scorings``: it never enters the
    history, so nothing in the discussion waits for it. Returns what later rounds may see, or
    None when the evaluation could not be asked for.
    """
    evaluation = await discussion.ask(
        "evaluation", critics.evaluator, EVALUATION, parent=solution, index=index, history=history
    )
    if evaluation is None:
        return None
    scorings.create_task(discussion.ask("scoring", critics.scorer, SCORING, parent=evaluation))
    return HistoryItem(solution.text, evaluation.text)
