"""Discussions made by hand, and discussions of agents who follow a script."""

import faulthandler
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from comas.config.schema import Interaction
from comas.interaction.schedules import run_discussions
from comas.types import (
    ROLE_LETTERS,
    ROLES,
    Discussion,
    FinishReason,
    Generate,
    Generation,
    Question,
    Request,
    Role,
    TrainingSample,
    Turn,
)

QUESTION = Question("q", "math", "?")
_ROLES = {letter: role for role, letter in ROLE_LETTERS.items()} | {"f": "refinement"}


def generation(
    text: str = "", *, num_tokens: int = 1, finish_reason: FinishReason = "stop"
) -> Generation:
    """A response of ``num_tokens`` tokens to a prompt of one."""
    logprobs = (-1.0,) * num_tokens
    return Generation((1,), (2,) * num_tokens, text, logprobs, finish_reason, policy_version=0)


def turn(turn_id: str, text: str = "", *, agent: int = 0) -> Turn:
    """The turn of an id, which gives its round, role and parent: "r1.s0.e0" evaluates "r1.s0"."""
    parent, _, own = turn_id.rpartition(".")
    role = _ROLES[own[0]]
    parent_id = None if role == "solution" else parent
    round_index = int(re.findall(r"\d+", turn_id)[0])
    return Turn(turn_id, parent_id, round_index, role, agent, "prompt", generation(text))


def discussion(*turns: Turn, name: str = "d", question: Question = QUESTION) -> Discussion:
    """A discussion of ``question``."""
    roles = {**ROLES, "refinement": Role("refinement", "solves")}
    return Discussion(name, question, turns, roles=roles)


def sample(**fields: object) -> TrainingSample:
    """A solution of one token by agent 0, with reward 1."""
    solution = TrainingSample(0, "q", "d", "r0.s0", 0, "solution", (1, 2), (3,), (-0.5,), 1.0)
    return replace(solution, **fields)  # type: ignore[arg-type]


def request(
    prompt: str = "", *, agent: int = 0, turn_id: str = "r0.s0", seed: int = 0, **more: Any
) -> Request:
    """A request to agent 0."""
    return Request(agent, prompt, ("d", turn_id), "solution", seed, **more)


async def speak(request: Request) -> Generation:
    """An agent that names the turn and its seed, and ends like a scoring or a judgment."""
    closing = "<score>3</score> <judgment>correct</judgment>"
    said = f"{'/'.join(request.turn)} by {request.agent_index} under seed {request.seed}"
    return generation(f"{said}. {closing}", num_tokens=3)


def discuss(
    questions: Sequence[Question],
    generate: Generate = speak,
    *,
    num_agents: int = 4,
    seed: int = 0,
    **rules: object,
) -> list[Discussion]:
    """The discussions of one step under ``rules``; ends this process if they hang."""
    faulthandler.dump_traceback_later(60, exit=True)
    try:
        return run_discussions(
            questions,
            generate=generate,
            num_agents=num_agents,
            rules=Interaction(**rules),  # type: ignore[arg-type]
            seed=seed,
            step=1,
        )
    finally:
        faulthandler.cancel_dump_traceback_later()
