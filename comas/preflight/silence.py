"""Discussions in which nobody says anything: what the schedule alone decides."""

import asyncio

from comas.config.schema import Config
from comas.interaction import run_discussions
from comas.types import Discussion, Generation, Question, TurnKey


def silent_discussions(config: Config, *, num_questions: int, step: int = 0) -> list[Discussion]:
    """The discussions of a step of so many questions, with every turn and who has it.

    Not to be called while an event loop runs.
    """
    silence = Generation((0,), (0,), "", (0.0,), "stop", 0)

    async def stay_silent(agent_index: int, prompt: str, *, turn: TurnKey, seed: int) -> Generation:
        return silence

    return asyncio.run(
        run_discussions(
            [Question(f"{step}/{number}", "math", "") for number in range(num_questions)],
            generate=stay_silent,
            num_agents=config.society.num_agents,
            rules=config.interaction,
            seed=config.seed,
            step=step,
        )
    )
