"""The quick-start society's discussions against the same ones phase by phase, on real engines.

Two rollout engines under Ray, as in a run of configs/quickstart.yaml. The discussions are held
once; then the same requests are timed in three ways, in turns:

  barrier-free    as ``run_discussions`` sends them: each as soon as its inputs are ready
  phase-by-phase  all solutions of a round, then all evaluations, then all scorings
  all at once     as if every prompt were known beforehand

"driver" is the CPU time of this process per response.
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
from scripts.benchmarks._turns import Numbers, Repeated, Report, Way, take_turns
from scripts.command import read_arguments

Hold = Callable[..., list[Discussion]]
"""Holds the same discussions; called with ``generate=``."""
MARK = 1.0
"""Target: barrier-free is at least as fast as phase by phase."""
DRIVER_MARK_MS = 0.6
"""Target: maximum CPU time of the driver per response, barrier-free."""


@dataclass
class Arguments(Repeated):
    sizes: str = "24,96,384"
    """Numbers of discussions."""


def main(arguments: Arguments) -> int:
    """Measure, print, and return 1 if a target is missed."""
    # Frozen policies have only engines.
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
    heading = f"{len(batch)} discussions, {len(lengths)} responses, {sum(lengths)} tokens"
    report.add(heading, turns)
    report.add_ratio(turns, "phase-by-phase", "barrier-free", at_least=MARK)
    report.add_ratio(turns, "all at once", "barrier-free")
    driver_ms = median(numbers["driver, ms"] for numbers in turns["barrier-free"])
    line = f"driver: {driver_ms:.3f} ms for each response"
    report.add_target(line, f"at most {DRIVER_MARK_MS:g}", driver_ms <= DRIVER_MARK_MS)


def rehearse(hold: Hold, generate: Generate) -> tuple[list[int], dict[str, Way]]:
    """Hold the discussions once, as warm-up; return the tokens of each response, and three ways to
    repeat the same requests."""
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
    """Wrap ``generate`` to hold back each request until all of its phase (round and role) in
    ``discussions`` have been made."""
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
