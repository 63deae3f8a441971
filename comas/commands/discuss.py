"""``comas discuss``: a society discusses a question on the terminal."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from comas.reward_formulation.interaction_reward import parse_score
from comas.types import ALL_DOMAINS, Domain
from comas.utils.client import Client, Endpoint, RequestError, RequestOptions
from comas.utils.files import json_type
from comas.utils.interrupts import run
from comas.utils.invocation import CommandParser
from comas.utils.terminal import command, printable
from comas.verification.boxed import last_boxed_list
from evaluation.config import EvaluationConfig
from evaluation.execution import served, watched
from evaluation.models import Target, find_remote, find_target
from evaluation.plan import with_needed_context
from evaluation.runner import answer_task
from evaluation.setups import discussion
from evaluation.setups.program import program_of
from evaluation.types import Answer, BenchmarkTask, Call, Setup, role_of

NUM_RETRIES = 2
"""Few, so that a waiting user sees an error after 2 s."""
INDENT = "    "

log = logging.getLogger("discuss")


@command("discuss", "comas.utils.progress")
def main(arguments: Sequence[str]) -> int:
    """Hold the discussion; returns the exit status."""
    options = parser().parse_intermixed_args(arguments)
    target = target_of(options)
    log.info("asking %s", target.title)
    try:
        discuss(target, options)
    except RequestError as error:
        raise ValueError(f"{target.title} gave no answer: {error}") from error
    return 0


def parser() -> argparse.ArgumentParser:
    arguments = CommandParser("discuss")
    arguments.add_argument("model", nargs="?")
    arguments.add_argument("question")
    arguments.add_argument("--base-url")
    arguments.add_argument("--name")
    arguments.add_argument("--extra-body", type=_json_object, default={})
    arguments.add_argument("--untrained", action="store_true")
    arguments.add_argument("--domain", choices=ALL_DOMAINS, default="math")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--temperature", type=float, default=RequestOptions.temperature)
    return arguments


def _json_object(text: str) -> dict[str, Any]:
    try:
        return json_type(dict[str, Any]).validate_json(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f'{text} is not a JSON object like {{"top_p": 0.9}}'
        ) from error


def target_of(options: argparse.Namespace) -> Target:
    """Find the models to ask. Raises ValueError for wrong or missing options."""
    if (options.model is None) == (options.base_url is None):
        raise ValueError("give either MODEL and QUESTION, or --base-url URL and QUESTION")
    if not options.question.strip():
        raise ValueError('QUESTION is empty: give one in quotes, such as "What is 48 + 23?"')
    if options.base_url is not None and options.untrained:
        raise ValueError("--untrained is for a run directory: leave it out")
    if options.base_url is not None:
        return find_remote(options.base_url, model=options.name, extra_body=options.extra_body)
    if options.extra_body or options.name is not None:
        raise ValueError("--name and --extra-body are for an endpoint, which --base-url names")
    return find_target(options.model, weights="untrained" if options.untrained else "trained")


def discuss(target: Target, options: argparse.Namespace) -> None:
    """Let the society, or a single model in all roles, discuss, and show the discussion."""
    *_, everybody = target.subjects.values()
    config = EvaluationConfig()
    requests = RequestOptions(
        temperature=options.temperature,
        max_tokens=target.max_tokens(config.max_tokens),
        system_prompt=target.system_prompt,
        num_retries=NUM_RETRIES,
    )
    setup = setup_of(target)
    question = options.question
    task = BenchmarkTask("question", options.domain, question, question, gold="")
    target = with_needed_context(target, [setup], [[task]], requests)
    with (
        TemporaryDirectory(prefix="comas-discuss-") as logs,
        served(target, logs=Path(logs), config=config) as servers,
    ):
        models = [servers.endpoints[index] for index in everybody]
        talk = discuss_task(task, models, requests, seed=options.seed, show=show, setup=setup)
        answer = run(watched(talk, servers))
        show(f"final answer: {final_answer(answer.response, options.domain)}")
        by_program = f"the answer of the program, which asked {len(answer.calls)} times"
        show(f"({by_program if setup.program else how_scored(answer.calls)})")


async def discuss_task(
    task: BenchmarkTask,
    models: Sequence[Endpoint],
    options: RequestOptions,
    *,
    seed: int,
    show: Callable[[str], None],
    setup: Setup = discussion.DISCUSSION,
) -> Answer:
    """Let ``models`` discuss in a ``setup`` of discussions (``setup_of``). ``show`` gets each turn
    as soon as it is sampled, as text. Returns the final answer, and all calls. Raises RequestError
    when a model gives no reply, or a program fails."""

    def on_call(call: Call) -> None:
        about = about_request if setup.program else about_turn
        show(turn_text(about(call), call))

    async with Client(models, options) as client:
        return await answer_task(task, seed=seed, setup=setup, client=client, on_call=on_call)


def setup_of(target: Target) -> Setup:
    """Return the setup of a run's program or, without one, ``discussion`` with its prompts."""
    if target.run is not None and (program := program_of(target.run)) is not None:
        return program
    flow = partial(discussion.answer, rules=replace(discussion.RULES, prompts=target.prompts))
    return replace(discussion.DISCUSSION, flow=flow)


def about_request(call: Call) -> str:
    """Describe a program's request, such as ``"request 2 of agent 0: plan"``."""
    number, _ = call.label.split(".")
    return f"request {number[1:]} of agent {call.speaker}: {role_of(call.label)}"


def about_turn(call: Call) -> str:
    """Describe a turn, such as ``"round 0, agent 0: scoring of solution 1, score 1"``."""
    round_, solution, *_ = call.label.split(".")
    role = role_of(call.label)
    what = f"solution {solution[1:]}"
    if role != "solution":
        what = f"{role} of {what}"  # each solution has one evaluation, with one scoring
    if role == "scoring":
        what += f", score {parse_score(call.response) or 'unreadable'}"
    return f"round {round_[1:]}, agent {call.speaker}: {what}"


def turn_text(heading: str, call: Call) -> str:
    """Format a reply, with only the length of its thinking, which no other agent reads."""
    lines = [f"(thought in {len(call.thinking.split())} words)"] if call.thinking else []
    lines += call.response.splitlines()
    return "\n".join([heading, *(INDENT + line for line in lines)])


def final_answer(solution: str, domain: Domain) -> str:
    """Return the boxed answer of a solution; all of it if it is a program or has no box."""
    boxed = None if domain == "coding" else last_boxed_list(solution)
    return solution if boxed is None else boxed


def how_scored(calls: Sequence[Call]) -> str:
    """Describe the score of the final answer, the solution with the best mean."""
    scores: dict[str, list[int]] = {}
    for call in calls:
        given = scores.setdefault(".".join(call.label.split(".")[:2]), [])
        if role_of(call.label) == "scoring" and (score := parse_score(call.response)):
            given.append(score)
    means = [fmean(given) for given in scores.values() if given]
    if not means:
        return f"none of the {len(scores)} solutions has a score that can be read"
    if max(means) == 1:
        return f"the judges reject it: no solution of {len(scores)} has a better score than 1 of 3"
    return f"score {max(means):g} of 3, the best of {len(scores)} solutions"


def show(text: str) -> None:
    """Write at once, also to a pipe, with control characters escaped."""
    sys.stdout.write(f"{printable(text)}\n")
    sys.stdout.flush()
