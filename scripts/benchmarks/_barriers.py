"""Discussions phase by phase, for comparison: a way to sample with barriers between the phases."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from comas.types import Discussion, Generate, Generation, TurnKey


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
