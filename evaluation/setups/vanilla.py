"""Vanilla: the model is asked once (1 call a task)."""

from __future__ import annotations

from evaluation.types import Ask, BenchmarkTask, Setup


async def answer(task: BenchmarkTask, ask: Ask) -> str:
    """Send the task, and take what comes."""
    return await ask([{"role": "user", "content": task.query}], label="answer")


VANILLA = Setup(answer, num_speakers=1)
