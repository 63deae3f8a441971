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
import gc
import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from comas.config.loading import load
from comas.config.schema import Config
from comas.data import QuestionSet, draw_batch, load_questions
from comas.engines.cluster.exchange import Exchange
from comas.engines.cluster.launch import Launch
from comas.engines.cluster.sampler import Sampler
from comas.engines.cluster.supervision import wait_for_all
from comas.interaction import run_discussions
from comas.quickstart.build import build_society
from comas.types import ROLES, Discussion, Generate, Generation, TurnKey
from comas.utils.concurrency import run_all
from scripts.benchmarks import read_arguments

MARK = 1.0
"""Barrier-free against phase by phase: at least as fast."""

DRIVER_MARK_MS = 0.2
"""CPU time of the driver for each response of barrier-free discussions, at most."""


@dataclass(frozen=True)
class Measurement:
    """One way to send all requests, once."""

    seconds: float
    driver_ms: float
    """For each response."""


@dataclass
class Arguments:
    sizes: str = "24,96,384"
    """Numbers of discussions."""
    saves: str = "saves"
    """Where the society is, or is built."""
    repeats: int = 5


def main(arguments: Arguments) -> int:
    """Measure, print, and return 1 if a mark is missed."""
    config = load(Config, Path("configs/quickstart.yaml"), [])
    society = build_society(Path(arguments.saves), seed=config.seed)
    questions = load_questions(society / "train.jsonl")
    models = [str(society / "models" / Path(name).name) for name in config.models]
    with _sampler(config, models) as sampler:
        reached = [
            _compare(config, sampler, questions, size=int(size), repeats=arguments.repeats)
            for size in arguments.sizes.split(",")
        ]
    return 0 if all(reached) else 1


@contextmanager
def _sampler(config: Config, models: Sequence[str]) -> Iterator[Sampler]:
    """The society's rollout engines, which serve the models as they were built."""
    launch = Launch(config, models=models, device="cpu")
    try:
        engines = launch.rollouts()
        starting = {engine.name: engine.call("start") for engine in engines}
        wait_for_all(starting, doing="starting", timeout_s=config.cluster.start_timeout_s)
        gc.freeze()  # as Agents does
        yield Sampler(
            engines,
            policy_of_agent=config.policy_of_agent,
            exchange=partial(Exchange, cluster=config.cluster),
        )
    finally:
        launch.stop()


def _compare(
    config: Config, sampler: Sampler, questions: QuestionSet, *, size: int, repeats: int
) -> bool:
    batch = draw_batch(questions.questions, step=0, batch_size=size, seed=0, shuffle=True)

    asked: dict[TurnKey, tuple[int, str, int]] = {}

    async def recorded(
        agent_index: int, prompt: str, *, turn: TurnKey, seed: int
    ) -> Generation | None:
        asked[turn] = agent_index, prompt, seed
        return await sampler.generate(agent_index, prompt, turn=turn, seed=seed)

    async def discuss(generate: Generate = sampler.generate) -> list[Discussion]:
        return await run_discussions(
            batch,
            generate=generate,
            num_agents=config.society.num_agents,
            rules=config.interaction,
            seed=0,
            step=1,
        )

    async def by_phase() -> list[Discussion]:
        return await discuss(_with_barriers(sampler.generate, _phases(discussions)))

    async def at_once() -> None:
        await run_all(
            sampler.generate(agent, prompt, turn=turn, seed=seed)
            for turn, (agent, prompt, seed) in asked.items()
        )

    discussions = asyncio.run(discuss(recorded))  # also warms the engines up
    ways: dict[str, Callable[[], Coroutine[None, None, object]]] = {
        "barrier-free": discuss,
        "phase-by-phase": by_phase,
        "all at once": at_once,
    }
    results: dict[str, list[Measurement]] = {name: [] for name in ways}
    for repeat in range(repeats):
        for name, way in list(ways.items())[:: 1 if repeat % 2 else -1]:
            results[name].append(_measure(way, num_responses=len(asked)))
    num_tokens = sum(
        len(turn.generation.response_token_ids) for d in discussions for turn in d.turns
    )
    heading = f"{size} discussions, {len(asked)} responses, {num_tokens} tokens"
    return _report(heading, num_tokens, results)


def _with_barriers(generate: Generate, phases: Sequence[Sequence[TurnKey]]) -> Generate:
    """``generate`` with each request held back until all of its phase are asked for."""
    barriers: dict[TurnKey, asyncio.Barrier] = {}
    for phase in phases:
        barriers |= dict.fromkeys(phase, asyncio.Barrier(len(phase)))

    async def held_back(
        agent_index: int, prompt: str, *, turn: TurnKey, seed: int
    ) -> Generation | None:
        await barriers[turn].wait()
        return await generate(agent_index, prompt, turn=turn, seed=seed)

    return held_back


def _phases(discussions: Sequence[Discussion]) -> list[list[TurnKey]]:
    """All turns, those of a round and a role together, in the order of rounds and roles."""
    phases: dict[tuple[int, int], list[TurnKey]] = defaultdict(list)
    for discussion in discussions:
        for turn in discussion.turns:
            phase = (turn.round_index, ROLES.index(turn.role))
            phases[phase].append((discussion.discussion_id, turn.turn_id))
    return [phases[phase] for phase in sorted(phases)]


def _measure(
    way: Callable[[], Coroutine[None, None, object]], *, num_responses: int
) -> Measurement:
    started, cpu = time.perf_counter(), time.process_time()
    asyncio.run(way())
    driver_ms = 1000 * (time.process_time() - cpu) / num_responses
    return Measurement(time.perf_counter() - started, driver_ms)


def _report(heading: str, num_tokens: int, results: dict[str, list[Measurement]]) -> bool:
    lines = [heading, f"{'':16} {'seconds':>8} {'tokens/s':>9} {'driver, ms':>11}"]
    for name, measured in results.items():
        seconds = median(m.seconds for m in measured)
        driver_ms = median(m.driver_ms for m in measured)
        lines.append(f"{name:16} {seconds:8.2f} {num_tokens / seconds:9.0f} {driver_ms:11.3f}")
    free, phased, at_once = results.values()
    faster = [p.seconds / f.seconds for p, f in zip(phased, free, strict=True)]
    shares = [a.seconds / f.seconds for a, f in zip(at_once, free, strict=True)]
    driver_ms = median(m.driver_ms for m in free)
    lines += [
        f"barrier-free against phase-by-phase: {median(faster):.2f} x "
        f"({min(faster):.2f} to {max(faster):.2f}; mark {MARK})",
        f"barrier-free against all at once: {median(shares):.2f} x "
        f"({min(shares):.2f} to {max(shares):.2f})",
        f"driver: {driver_ms:.3f} ms for each response (mark {DRIVER_MARK_MS})",
    ]
    sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.flush()
    return median(faster) >= MARK and driver_ms <= DRIVER_MARK_MS


if __name__ == "__main__":
    arguments = read_arguments(Arguments, about=__doc__)
    logging.basicConfig(level=logging.WARNING)
    sys.exit(main(arguments))
