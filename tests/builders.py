"""Discussions made by hand, and discussions of agents who follow a script."""

import faulthandler
import re
from dataclasses import replace
from typing import Any

import torch

from comas import types
from comas.config.schema import Interaction
from comas.interaction.schedules import run_discussions
from comas.policy_optimization.advantages import compute_advantages
from comas.policy_optimization.batching import response_mask
from comas.reward_formulation import REWARD_SCHEMES
from comas.types import Discussion, Generation, Question, Request, TrainingSample, Turn

QUESTION = Question("q", "math", "?")
_ROLES = {letter: role for role, letter in types.ROLE_LETTERS.items()} | {"f": "refinement"}


def generation(text="", *, num_tokens=1, finish_reason: types.FinishReason = "stop") -> Generation:
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
    roles = {**types.ROLES, "refinement": types.Role("refinement", "solves")}
    return Discussion(name, question, turns, roles=roles)


def paid(scheme: str, *discussions: Discussion) -> list[tuple[float | None, ...]]:
    """What a reward scheme that needs no verdicts pays the turns of each discussion."""
    rewards = REWARD_SCHEMES[scheme](discussions, dict, seed=0, step=0)
    return [item.rewards for item in rewards.discussions]


def sample(**fields: object) -> TrainingSample:
    """A solution of one token by agent 0, with reward 1."""
    solution = TrainingSample(0, "q", "d", "r0.s0", 0, "solution", (1, 2), (3,), (-0.5,), 1.0)
    return replace(solution, **fields)  # type: ignore[arg-type]


def mask_of(*lengths: int, width: int | None = None) -> torch.Tensor:
    """Which of ``width`` columns are tokens of responses of these lengths."""
    return torch.arange(width or max(lengths)) < torch.tensor(lengths)[:, None]


def request(prompt="", *, agent=0, turn_id="r0.s0", seed=0, **more: Any) -> Request:
    """A request to agent 0."""
    return Request(agent, prompt, ("d", turn_id), "solution", seed, **more)


def advantages_of(samples: list[TrainingSample], algorithm: Any, *, ratio=0.0) -> torch.Tensor:
    """The advantages of a policy with this log-ratio of each token to its reference."""
    mask = response_mask(samples)
    ratios = torch.full(mask.shape, ratio)
    return compute_advantages(samples, mask=mask, log_ratios=ratios, algorithm=algorithm, memory={})


async def speak(request: Request) -> Generation:
    """An agent that names the turn and its seed, and ends like a scoring or a judgment."""
    closing = "<score>3</score> <judgment>correct</judgment>"
    said = f"{'/'.join(request.turn)} by {request.agent_index} under seed {request.seed}"
    return generation(f"{said}. {closing}", num_tokens=3)


def discuss(questions, generate: types.Generate = speak, *, num_agents=4, seed=0, **rules):
    """The discussions of one step under ``rules``; ends this process if they hang."""
    faulthandler.dump_traceback_later(600, exit=True)
    try:
        settings = {"num_agents": num_agents, "rules": Interaction(**rules), "seed": seed}
        return run_discussions(questions, generate=generate, step=1, **settings)
    finally:
        faulthandler.cancel_dump_traceback_later()
