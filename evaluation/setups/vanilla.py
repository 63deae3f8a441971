"""Vanilla: the model is asked once (1 call per task)."""

from comas.interaction.setup_prompts import user
from evaluation.types import Ask, BenchmarkTask, Setup


async def answer(task: BenchmarkTask, ask: Ask) -> str:
    """The reply to the task, as it is."""
    return await ask([user(task.query)], label="answer")


VANILLA = Setup(answer, num_speakers=1)
