"""The quick-start society's discussions against the same ones phase by phase, on real engines.

Two rollout engines under Ray, as in a run of configs/quickstart.yaml. The discussions are held
once; then exactly the same requests are timed three ways, in turns:

  barrier-free    as ``run_discussions`` sends them: each as soon as what it needs is there
  phase-by-phase  by ``run_discussions``, too: all solutions of a round, then all evaluations, then
                  all scorings, each held back until the last of its phase has come
  all at once     as if every prompt had been known beforehand

Driver: CPU time of this process, which asks and is answered, for each response.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from comas.config.loading import load
from comas.config.schema import Config
from comas.data import draw_batch, load_questions
from comas.engines.cluster.agents import Agents
from comas.interaction.schedules import run_discussions
from comas.quickstart.build import build_society
from comas.types import Discussion, Generate, Generation, Question, Request, TurnKey
from scripts.benchmarks._turns import Numbers, Ratio, Repeated, Report, Way, take_turns
from scripts.command import read_arguments

Hold = Callable[..., list[Discussion]]
"""Holds always the same discussions; called with ``generate=``."""
MARK = 1.0
"""Barrier-free against phase by phase: at least as fast."""

DRIVER_MARK_MS = 0.6
"""CPU time of the driver for each response of barrier-free discussions, at most."""


@dataclass
class Arguments(Repeated):
    sizes: str = "24,96,384"
    """Numbers of discussions."""


def main(arguments: Arguments) -> int:
    """Measure, print, and return 1 if a mark is missed."""
    # Frozen policies have engines alone.
    config = load(Config, Path("configs/quickstart.yaml"), ["society.update_every=[0]"])
    society = build_society(Path("saves"), seed=config.seed)
    questions = load_questions(society / "train.jsonl")
    report = Report()
    models = [str(society / "models" / Path(name).name) for name in config.models]
    with Agents(config, models=models, device="cpu") as agents:
        for size in map(int, arguments.sizes.split(",")):
            batch = draw_batch(questions.questions, step=0, batch_size=size, seed=0)
            _compare(config, agents, batch, report, repeats=arguments.repeats)
    return report.end()


def _compare(
    config: Config, agents: Agents, batch: Sequence[Question], report: Report, *, repeats: int
) -> None:
    hold = partial(
        run_discussions,
        batch,
        num_agents=config.society.num_agents,
        rules=config.interaction,
        seed=0,
        step=1,
    )
    lengths, ways = rehearse(hold, agents.generate)

    def measured(way: Way) -> Numbers:
        started, cpu_started = time.perf_counter(), time.process_time()
        way()
        cpu_seconds = time.process_time() - cpu_started
        seconds = time.perf_counter() - started
        return {
            "seconds": seconds,
            "tokens/s": sum(lengths) / seconds,
            "driver, ms": 1000 * cpu_seconds / len(lengths),
        }

    turns = take_turns(ways, repeats=repeats, measure=measured)
    report.add(
        f"{len(batch)} discussions, {len(lengths)} responses, {sum(lengths)} tokens",
        turns,
        ratios=[
            Ratio("phase-by-phase", "barrier-free", at_least=MARK),
            Ratio("all at once", "barrier-free"),
        ],
    )
    driver_ms = median(numbers["driver, ms"] for numbers in turns["barrier-free"])
    line = f"driver: {driver_ms:.3f} ms for each response"
    report.add_mark(line, driver_ms, at_most=DRIVER_MARK_MS)


def rehearse(hold: Hold, generate: Generate) -> tuple[list[int], dict[str, Way]]:
    """Hold the discussions once, which warms the engines up; returns the tokens of each response,
    and three ways to have exactly the same requests answered again."""
    asked: dict[TurnKey, Request] = {}

    async def recorded(request: Request) -> Generation | None:
        asked[request.turn] = request
        return await generate(request)

    async def all_at_once() -> None:
        await asyncio.gather(*map(generate, asked.values()))

    discussions = hold(generate=recorded)
    lengths = [len(t.generation.response_token_ids) for d in discussions for t in d.turns]
    return lengths, {
        "barrier-free": lambda: hold(generate=generate),
        "phase-by-phase": lambda: hold(generate=with_barriers(generate, discussions)),
        "all at once": lambda: asyncio.run(all_at_once()),
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

    async def held_back(request: Request) -> Generation | None:
        await barriers[request.turn].wait()
        return await generate(request)

    return held_back


if __name__ == "__main__":
    arguments = read_arguments(Arguments, about=__doc__)
    logging.basicConfig(level=logging.WARNING)
    sys.exit(main(arguments))
