"""LoRA agents against whole models: whole runs of the quick-start, and one batch for all adapters.

Each number of agents trains twice, as adapters over one tiny model and as models of their own
(configs/quickstart_lora.yaml, configs/quickstart/agents_2.yaml): held-out accuracy before and
after, seconds with start-up, and the most memory that all processes held together. Then, on one
engine, the same requests are answered in turns by four adapters in one batch and by one.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from comas.config.loading import load
from comas.config.schema import Config
from comas.data import load_questions
from comas.engines.cluster.agents import Agents
from comas.interaction.prompts import SOLUTION, fill
from comas.preflight.machine import describe_machine
from comas.preflight.memory import GIB
from comas.preflight.sharding import settle_sharding
from comas.quickstart.build import build_society
from comas.run.records import read_rows
from comas.types import Question
from comas.utils.concurrency import run_all
from scripts.benchmarks._turns import (
    NO_LEAST,
    NO_MOST,
    Ratio,
    Repeated,
    Report,
    timed,
)
from scripts.command import read_arguments, say
from scripts.gpu_check.measures import memory_peak

ADAPTERS, WHOLE = "LoRA", "whole models"
CONFIGS = {ADAPTERS: "configs/quickstart_lora.yaml", WHOLE: "configs/quickstart/agents_2.yaml"}
NUM_ADAPTERS = 4
GAIN_MARK, TIME_MARK, MEMORY_MARK, AGENTS_MARK, MIXED_MARK = 0.20, 1.3, 0.6, 1.15, 1.1
"""At least +20 points; at most 1.3 times the seconds of whole models, 0.6 of their memory with four
agents, 1.15 times the memory of one agent with four, 1.1 times the seconds of one adapter."""


@dataclass
class Arguments(Repeated):
    seeds: str = "0"
    agents: str = "2"
    """Numbers of agents, each as LoRA and as whole models."""
    steps: int = 60
    """Steps of each run; 0: leave the runs out."""
    requests: int = 384
    """Requests to one engine in each turn of the comparison; 0: leave it out."""
    repeats: int = 7
    saves: str = "saves"
    """Where the societies are, or are built."""


@dataclass(frozen=True)
class Run:
    """One whole run."""

    kind: str
    num_agents: int
    seed: int
    untrained: float
    trained: float
    seconds: float
    memory_gib: float


def main(arguments: Arguments) -> int:
    """Run, print, and return 1 if a mark is missed."""
    runs: list[Run] = []
    seeds = arguments.seeds.split(",") if arguments.steps else []
    for seed, num_agents, kind in itertools.product(seeds, arguments.agents.split(","), CONFIGS):
        society = build_society(Path(arguments.saves), seed=int(seed))
        run = whole_run(kind, int(num_agents), int(seed), society, num_steps=arguments.steps)
        say(
            f"{run.kind:13} {run.num_agents} agents, seed {run.seed}: "
            f"{100 * run.untrained:.1f} -> {100 * run.trained:.1f} %, {run.seconds:.0f} s, "
            f"{run.memory_gib:.2f} GiB"
        )
        runs.append(run)
    report = Report(arguments)
    if runs:
        compare(runs, report, num_steps=arguments.steps)
    if arguments.requests:
        mixed_batch(arguments, report)
    return report.end()


def whole_run(kind: str, num_agents: int, seed: int, society: Path, *, num_steps: int) -> Run:
    """Train as ``scripts/train_comas.sh`` does, in a folder that is deleted afterwards.

    Raises RuntimeError with the run's output when it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        saves = Path(folder)
        (saves / "quickstart").symlink_to(society.parent.absolute())
        settings = [f"society.num_agents={num_agents}", f"seed={seed}", f"saves={saves}"]
        sizes = [f"training.num_steps={num_steps}", f"training.validate_every={num_steps}"]
        command = [sys.executable, "-m", "comas", CONFIGS[kind], *settings, *sizes]
        started = time.monotonic()
        with memory_peak("cpu") as peak:
            ran = subprocess.run(command, check=False, capture_output=True, text=True)
        if ran.returncode != 0:
            raise RuntimeError(f"a run ended with status {ran.returncode}:\n{ran.stderr}")
        seconds = time.monotonic() - started
        first, *_, last = read_rows(next(saves.glob("*/metrics.jsonl")))
    key = "validation/accuracy"
    return Run(kind, num_agents, seed, first[key], last[key], seconds, peak.bytes / GIB)


def compare(runs: Sequence[Run], report: Report, *, num_steps: int) -> None:
    """Tell the gains of LoRA agents, and their time and memory over those of whole models."""
    of_kind = {kind: [run for run in runs if run.kind == kind] for kind in CONFIGS}
    for own, whole in zip(of_kind[ADAPTERS], of_kind[WHOLE], strict=True):
        who = f"{own.num_agents} agents, seed {own.seed}, LoRA"
        gain, seconds = own.trained - own.untrained, own.seconds / whole.seconds
        memory = own.memory_gib / whole.memory_gib
        is_long, is_large = num_steps >= Arguments.steps, own.num_agents >= NUM_ADAPTERS
        least = GAIN_MARK if is_long else NO_LEAST
        most = MEMORY_MARK if is_large else NO_MOST
        report.add_mark(f"{who}: gain {100 * gain:+.1f} points", gain, at_least=least)
        report.add_mark(f"{who} : whole, time: {seconds:.2f} x", seconds, at_most=TIME_MARK)
        report.add_mark(f"{who} : whole, memory: {memory:.2f} x", memory, at_most=most)
    fewest, largest = (end(of_kind[ADAPTERS], key=lambda run: run.num_agents) for end in (min, max))
    if largest.num_agents > fewest.num_agents:
        ratio = largest.memory_gib / fewest.memory_gib
        line = f"{largest.num_agents} : {fewest.num_agents} LoRA agents, memory: {ratio:.2f} x"
        report.add_mark(line, ratio, at_most=AGENTS_MARK)


def mixed_batch(arguments: Arguments, report: Report) -> None:
    """Compare the same requests by four adapters at once and by one, in turns."""
    society = build_society(Path(arguments.saves), seed=0)
    config = load(Config, Path(CONFIGS[ADAPTERS]), [f"society.num_agents={NUM_ADAPTERS}"])
    questions = load_questions(society / "train.jsonl").questions[: arguments.requests]
    models = [str(society / "models/qwen2")] * NUM_ADAPTERS
    config, _ = settle_sharding(config, models=models, machine=describe_machine("cpu"))
    with Agents(config, models=models, device="cpu") as agents:
        agents.sync_weights()
        report.compare(
            f"{len(questions)} requests in one batch",
            {
                f"{num} adapters": partial(answer_all, agents, questions, num_adapters=num)
                for num in (NUM_ADAPTERS, 1)
            },
            ratios=[Ratio(f"{NUM_ADAPTERS} adapters", "1 adapters", at_most=MIXED_MARK)],
            measure=timed,
        )


def answer_all(agents: Agents, questions: Sequence[Question], *, num_adapters: int) -> None:
    """Have every question answered, by the adapters in turn."""

    async def ask_all() -> None:
        await run_all(
            agents.generate(
                index % num_adapters,
                fill(SOLUTION, question.domain, question=question.text, history=[]),
                turn=("benchmark", f"r{index}.s0"),
                seed=index,
            )
            for index, question in enumerate(questions)
        )

    asyncio.run(ask_all())


if __name__ == "__main__":
    assert __doc__ is not None
    sys.exit(main(read_arguments(Arguments, about=__doc__)))
