"""Consistency: five samples, from which another call makes the final answer (6 calls per task).

The model aggregates; for a plain vote over the same samples see ``majority_vote``.
"""

from comas.interaction.setup_prompts import CONSISTENCY_SAMPLES, aggregation, user
from comas.utils.concurrency import run_all
from evaluation.types import Ask, BenchmarkTask, Setup


async def answer(task: BenchmarkTask, ask: Ask) -> str:
    """Sample, then aggregate."""
    samples = await draw_samples(task, ask)
    return await ask(aggregation(task.query, samples), label="summary", speaker=CONSISTENCY_SAMPLES)


async def draw_samples(task: BenchmarkTask, ask: Ask) -> list[str]:
    """The replies of five speakers to the task, asked at once and independently."""
    messages = [user(task.query)]
    return await run_all(
        ask(messages, label=f"sample {speaker}", speaker=speaker)
        for speaker in range(CONSISTENCY_SAMPLES)
    )


CONSISTENCY = Setup(answer, num_speakers=CONSISTENCY_SAMPLES + 1)
