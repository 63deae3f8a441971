"""The same discussions again: with no barrier, phase by phase, and all requests at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

from comas.types import Discussion, Generate, Generation, TurnKey
from comas.utils.concurrency import run_all

Hold = Callable[..., Awaitable[list[Discussion]]]
"""Holds always the same discussions; called with ``generate=``."""


async def rehearse(
    hold: Hold, generate: Generate
) -> tuple[list[int], dict[str, Callable[[], Awaitable[object]]]]:
    """Hold the discussions once, which warms the engines up; returns the tokens of each response,
    and three ways to have exactly the same requests answered again."""
    asked: dict[TurnKey, tuple[int, str, int]] = {}

    async def recorded(
        agent_index: int, prompt: str, *, turn: TurnKey, seed: int
    ) -> Generation | None:
        asked[turn] = agent_index, prompt, seed
        return await generate(agent_index, prompt, turn=turn, seed=seed)

    discussions = await hold(generate=recorded)
    lengths = [len(t.generation.response_token_ids) for d in discussions for t in d.turns]
    return lengths, {
        "barrier-free": lambda: hold(generate=generate),
        "phase-by-phase": lambda: hold(generate=with_barriers(generate, discussions)),
        "all at once": lambda: run_all(
            generate(agent, prompt, turn=turn, seed=seed)
            for turn, (agent, prompt, seed) in asked.items()
        ),
    }


def with_barriers(generate: Generate, discussions: Sequence[Discussion]) -> Generate:
    """``generate`` for the same ``discussions`` again, with each request held back until all of its
    phase are asked for: of a round and a role."""
    phases: dict[tuple[int, str], list[TurnKey]] = defaultdict(list)
    for discussion in discussions:
        for turn in discussion.turns:
            phases[turn.round_index, turn.role].append((discussion.discussion_id, turn.turn_id))
    barriers: dict[TurnKey, asyncio.Barrier] = {}
    for phase in phases.values():
        barriers |= dict.fromkeys(phase, asyncio.Barrier(len(phase)))

    async def held_back(
        agent_index: int, prompt: str, *, turn: TurnKey, seed: int
    ) -> Generation | None:
        await barriers[turn].wait()
        return await generate(agent_index, prompt, turn=turn, seed=seed)

    return held_back
