"""Discussions by a program, through the OpenAI-compatible door, against a built-in schedule.

Every agent answers the question once, with the same prompts on the same two engines; nobody
criticises. Seeds and answers differ, so times are compared per sampled token. The program asks by
plain ``openai``, with a client for each discussion.
"""

import asyncio
import logging
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from openai import AsyncOpenAI

from comas.config.loading import load
from comas.config.schema import Config
from comas.data import draw_batch, load_questions
from comas.engines.cluster.agents import Agents
from comas.interaction.prompts import SOLUTION, fill
from comas.interaction.schedules import run_discussions
from comas.quickstart.build import build_society
from comas.types import Question
from scripts.benchmarks._turns import Numbers, Repeated, Report, Way, take_turns
from scripts.command import read_arguments


@dataclass
class Arguments(Repeated):
    size: int = 64  # discussions


async def solve(question: Question, base_url: str) -> None:
    prompt = fill(SOLUTION, question.domain, question=question.text)
    async with AsyncOpenAI(base_url=base_url, api_key="none is needed") as client:
        ask = client.chat.completions.create
        chat: list[Any] = [{"role": "user", "content": prompt}]
        await asyncio.gather(*(ask(model=f"agent_{i}", messages=chat) for i in range(2)))


def main(arguments: Arguments) -> int:
    """Measure, print, and return 1 if the target is missed."""
    changes = ["society.update_every=[0]", "interaction.num_rounds=1", "interaction.criticism=none"]
    config = load(Config, Path("configs/quickstart.yaml"), changes)
    society = build_society(Path("saves"), seed=config.seed)
    models = [str(society / "models" / Path(name).name) for name in config.models]
    questions = load_questions(society / "train.jsonl").questions
    batch = draw_batch(questions, step=0, batch_size=arguments.size, seed=0)
    program = replace(config.interaction, program="scripts.benchmarks.door:solve")
    rules = {"program": program, "schedule": config.interaction}
    talk = partial(run_discussions, batch, num_agents=2, seed=0, step=1)
    with Agents(config, models=models, device="cpu") as agents:

        def measured(way: Way) -> Numbers:
            started, num_tokens = time.perf_counter(), sum(way())
            return {"us/token": 1e6 * (time.perf_counter() - started) / num_tokens}

        def hold(name: str) -> list[int]:
            held = talk(generate=agents.generate, rules=rules[name])
            return [turn.generation.num_sampled_tokens for each in held for turn in each.turns]

        ways = {name: partial(hold, name) for name in rules}
        take_turns(ways, repeats=1, measure=measured)  # warm-up
        turns = take_turns(ways, repeats=arguments.repeats, measure=measured)
    report = Report()
    report.add(f"{arguments.size} discussions of two responses", turns)
    pairs = zip(*turns.values(), strict=True)
    ratio = median(mine["us/token"] / other["us/token"] for mine, other in pairs)
    report.add_target(f"program : schedule, {ratio:.3f} x", "at most 1.1", ratio <= 1.1)
    return report.end()


if __name__ == "__main__":
    arguments = read_arguments(Arguments, about=__doc__)
    logging.basicConfig(level=logging.WARNING)
    sys.exit(main(arguments))
