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

from pydantic import TypeAdapter

from comas.reward_formulation.interaction_reward import parse_score
from comas.types import ALL_DOMAINS, Domain
from comas.utils.client import Client, RequestOptions
from comas.utils.endpoint import Endpoint
from comas.utils.interrupts import run
from comas.utils.invocation import CommandParser
from comas.utils.replies import RequestError
from comas.utils.terminal import command, printable
from comas.verification.boxed import last_boxed
from evaluation.config import EvaluationConfig
from evaluation.execution import served, watched
from evaluation.models import Target, find_remote, find_target
from evaluation.plan import with_needed_context
from evaluation.runner import answer_task
from evaluation.setups import discussion
from evaluation.types import Answer, BenchmarkTask, Call, Setup, role_of

NUM_RETRIES = 2
"""Few, so that a waiting user sees an error after 2 s."""
INDENT = "    "

log = logging.getLogger("discuss")


@command("discuss", "evaluation", "comas.utils.progress")
def main(arguments: Sequence[str]) -> int:
    """Hold the discussion; returns the exit status."""
    logging.getLogger("evaluation.server").setLevel(logging.WARNING)  # ports and logs
    options = parser().parse_args(arguments)
    target = target_of(options)
    log.info("asking %s", target.title)
    try:
        discuss(target, options)
    except RequestError as error:
        raise ValueError(f"{target.title} gave no reply: {error}") from error
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
        return TypeAdapter(dict[str, Any]).validate_json(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f'{text} is not a JSON object like {{"n": 1}}') from error


def target_of(options: argparse.Namespace) -> Target:
    """Find the models to ask. Raises ValueError for wrong or missing options."""
    if (options.model is None) == (options.base_url is None):
        raise ValueError("give either MODEL and QUESTION, or --base-url URL and QUESTION")
    if not options.question.strip():
        raise ValueError('QUESTION is empty: give one in quotes, such as "What is 48 + 23?"')
    if options.base_url is not None:
        return find_remote(options.base_url, model=options.name, extra_body=options.extra_body)
    if options.extra_body:
        raise ValueError(
            "--extra-body is for an endpoint: give --base-url as well, or leave it out"
        )
    return find_target(options.model, weights="untrained" if options.untrained else "trained")


def discuss(target: Target, options: argparse.Namespace) -> None:
    """Let the society, or a single model that plays one, discuss, and show it."""
    *_, everybody = target.subjects.values()
    config = EvaluationConfig()
    requests = RequestOptions(
        temperature=options.temperature,
        max_tokens=target.max_tokens(config.max_tokens),
        system_prompt=target.system_prompt,
        num_retries=NUM_RETRIES,
    )
    asked = [as_task(options.question, options.domain)]
    target = with_needed_context(target, [setup_in(target.prompts)], [asked], requests)
    with (
        TemporaryDirectory(prefix="comas-discuss-") as logs,
        served(target, logs=Path(logs), config=config) as servers,
    ):
        talk = discuss_question(
            options.question,
            domain=options.domain,
            models=[servers.endpoints[index] for index in everybody],
            options=requests,
            seed=options.seed,
            show=show,
            prompts=target.prompts,
        )
        answer = run(watched(talk, servers))
        show(f"final answer: {final_answer(answer.response, options.domain)}")
        show(f"({how_scored(answer.calls)})")


async def discuss_question(
    question: str,
    *,
    domain: Domain,
    models: Sequence[Endpoint],
    options: RequestOptions,
    seed: int,
    show: Callable[[str], None],
    prompts: str | None = None,
) -> Answer:
    """Let ``models`` discuss as in the setup ``discussion``, with the prompts in the file
    ``prompts`` if given; a single model plays four agents.

    ``show`` gets each turn as soon as it is sampled, as text. Returns the solution with the best
    score, and all calls.

    Raises RequestError when a model gives no reply.
    """
    task, setup = as_task(question, domain), setup_in(prompts)

    def on_call(call: Call) -> None:
        show(turn_text(call.label, call.speaker, call.response, thinking=call.thinking))

    async with Client(models, options) as client:
        return await answer_task(task, seed=seed, setup=setup, client=client, on_call=on_call)


def as_task(question: str, domain: Domain) -> BenchmarkTask:
    return BenchmarkTask("question", domain, question, question, gold="")


def setup_in(prompts: str | None) -> Setup:
    """Return the setup ``discussion``, with the prompts in the file ``prompts`` if given."""
    flow = partial(discussion.answer, rules=replace(discussion.RULES, prompts=prompts))
    return replace(discussion.DISCUSSION, flow=flow)


def turn_text(turn_id: str, agent: int, text: str, *, thinking: str = "") -> str:
    """Format a turn; of thinking, which no other agent reads, only the length.

    Example: ``turn_text("r0.s1.e0.t0", 0, "It holds. <score>1</score>")`` gives
    ``"round 0, agent 0: scoring of solution 1, score 1\\n    It holds. <score>1</score>"``
    """
    round_, solution, *_ = turn_id.split(".")
    role = role_of(turn_id)
    what = f"solution {solution[1:]}"
    if role != "solution":
        what = f"{role} of {what}"  # each solution has one evaluation, with one scoring
    if role == "scoring":
        what += f", score {parse_score(text) or 'unreadable'}"
    heading = f"round {round_[1:]}, agent {agent}: {what}"
    lines = [f"(thought in {len(thinking.split())} words)"] if thinking else []
    return "\n".join([heading, *(INDENT + line for line in (*lines, *text.splitlines()))])


def final_answer(solution: str, domain: Domain) -> str:
    """Return the boxed answer of a solution; all of it if it is a program or has no box."""
    boxed = None if domain == "coding" else last_boxed(solution)
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
