"""Discussions by a program, through the OpenAI-compatible door, against a built-in schedule.

Every agent answers the question once, with the same prompts on the same engines; nobody criticises.
Seeds and answers differ, so times are compared per sampled token. "driver" is the CPU time of this
process per response. The program asks by plain ``openai``, with one client for all discussions;
"a client each" shows what it costs to make one for each.

With model=FOLDER both agents are that model, on one engine, and answer general questions with
exactly "tokens" tokens.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from openai import AsyncOpenAI, OpenAI

from comas.config.loading import load
from comas.config.schema import Config
from comas.data import draw_batch, load_questions
from comas.engines.cluster.agents import Agents
from comas.interaction.prompts import SOLUTION, fill
from comas.interaction.schedules import run_discussions
from comas.quickstart.build import build_society
from comas.types import Question
from scripts.command import read_arguments, say

ALIKE = ("society.update_every=[0]", "interaction.num_rounds=1", "interaction.criticism=none")
CLIENT = OpenAI(api_key="none is needed")
TOPICS = ("tides", "glass", "bees", "compilers", "bread", "rivers", "chess", "steel")
ASKED = (
    "Explain {} to a child.",
    "What is the history of {}?",
    "Name three common errors about {}.",
    "How would you measure {}?",
    "Why do {} matter?",
    "Write a short story about {}.",
    "What do experts disagree on about {}?",
    "Compare {} and music.",
)
MARK = 1.1
"""Target: a program's time for a token is at most this multiple of the schedule's."""


@dataclass
class Arguments:
    repeats: int = 5
    """Turns of every alternative."""
    size: int = 64
    """Discussions, at most 64 of a model's."""
    model: str | None = None
    """Folder of a real model, such as saves/models/smollm2; null: the quick-start agents."""
    tokens: int = 128
    """Tokens of each of a real model's responses."""


def solve(question: Question, base_url: str) -> None:
    """Ask both agents at once, as the schedule does, with the client that all share."""
    ask = CLIENT.with_options(base_url=base_url).chat.completions.create
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda i: ask(model=f"agent_{i}", messages=_chat(question)), range(2)))


async def solve_by_own_client(question: Question, base_url: str) -> None:
    """Ask both agents with a client of its own."""
    async with AsyncOpenAI(base_url=base_url, api_key="none is needed") as client:
        ask = client.chat.completions.create
        await asyncio.gather(*(ask(model=f"agent_{i}", messages=_chat(question)) for i in range(2)))


def _chat(question: Question) -> list[Any]:
    return [{"role": "user", "content": fill(SOLUTION, question.domain, question=question.text)}]


def configure(arguments: Arguments) -> tuple[Config, list[str], Sequence[Question]]:
    """Return the configuration, the model of each policy, and the questions."""
    quickstart = Path("configs/quickstart.yaml")
    if arguments.model is not None:
        exactly = f"response_tokens={arguments.tokens}"
        config = load(
            Config,
            quickstart,
            [
                *ALIKE,
                "society.policy_of_agent=[0, 0]",
                "rollout.dtype=bfloat16",
                "rollout.cpu_kv_cache_mib=2048",
                *(f"rollout.{limit}_{exactly}" for limit in ("min", "max")),
            ],
        )
        asked = [question.format(topic) for question in ASKED for topic in TOPICS]
        general = [Question(f"q{i}", "science", text) for i, text in enumerate(asked)]
        return config, [arguments.model], general[: arguments.size]
    config = load(Config, quickstart, ALIKE)
    society = build_society(Path("saves"), seed=config.seed)
    models = [str(society / "models" / Path(name).name) for name in config.models]
    questions = load_questions(society / "train.jsonl").questions
    return config, models, draw_batch(questions, step=0, batch_size=arguments.size, seed=0)


def main(arguments: Arguments) -> int:
    """Measure, print, and return 1 if the target is missed."""
    config, models, batch = configure(arguments)
    programs = {"program": "solve"}
    if arguments.model is None:
        programs["a client each"] = "solve_by_own_client"
    rules = {"schedule": config.interaction} | {
        name: replace(config.interaction, program=f"scripts.benchmarks.door:{function}")
        for name, function in programs.items()
    }
    talk = partial(run_discussions, num_agents=2, seed=0, step=1)
    with Agents(config, models=models, device="cpu") as agents:

        def hold(name: str, num_questions: int = arguments.size) -> list[int]:
            held = talk(batch[:num_questions], generate=agents.generate, rules=rules[name])
            return [len(turn.generation.response_token_ids) for each in held for turn in each.turns]

        def measured(name: str) -> dict[str, float]:
            started, cpu_started = time.perf_counter(), time.process_time()
            lengths = hold(name)
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
            return {
                "seconds": seconds,
                "us/token": 1e6 * seconds / sum(lengths),
                "driver, ms": 1000 * cpu / len(lengths),
            }

        for name in rules:
            hold(name, num_questions=4)  # warm-up
        turns: dict[str, list[dict[str, float]]] = {name: [] for name in rules}
        for turn in range(arguments.repeats):
            for name in list(rules)[:: -1 if turn % 2 else 1]:
                turns[name].append(measured(name))
    say(f"{len(batch)} discussions of two responses; medians of {arguments.repeats}")
    for name, each in turns.items():
        told = [f"{number} {median(m[number] for m in each):.4g}" for number in each[0]]
        say(f"{name:13}  {', '.join(told)}")
    ratios = {}
    for name in programs:
        pairs = zip(turns[name], turns["schedule"], strict=True)
        found = [mine["us/token"] / other["us/token"] for mine, other in pairs]
        ratios[name] = median(found)
        spread = f"({min(found):.2f} to {max(found):.2f})"
        say(f"{name} : schedule, us/token: {ratios[name]:.3f} x {spread}")
    is_reached = ratios["program"] <= MARK
    say(f"program : schedule, at most {MARK:g}: {'reached' if is_reached else 'MISSED'}")
    return int(not is_reached)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    sys.exit(main(read_arguments(Arguments)))
