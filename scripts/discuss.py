"""Lets a society discuss a question on the terminal: what scripts/discuss.sh starts."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from comas.types import DOMAINS
from comas.utils.terminal import EXIT_FAULT, EXIT_INTERRUPTED, start_command
from evaluation.client import RequestOptions
from evaluation.config import EvaluationConfig
from evaluation.execution import served, watched
from evaluation.live import discuss_question, final_answer
from evaluation.models import Target, find_remote, find_target
from evaluation.types import RequestError

NUM_RETRIES = 2
"""Somebody waits: after 2 s it is said what is wrong."""

log = logging.getLogger("discuss")


def main(arguments: Sequence[str]) -> int:
    """Hold the discussion; returns the process's exit status."""
    start_command("discuss", "evaluation", "comas.utils.progress")
    logging.getLogger("evaluation.server").setLevel(logging.WARNING)  # ports and logs
    options = parser().parse_args(arguments)
    try:
        target = target_of(options)
        log.info("asking %s", target.title)
        discuss(target, options)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except RequestError as error:
        log.error("error: %s gave no reply: %s", target.title, error)
        return EXIT_FAULT
    except (ValueError, OSError, RuntimeError) as error:
        log.error("error: %s", error)
        return EXIT_FAULT
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line, as scripts/discuss.sh describes it."""
    arguments = argparse.ArgumentParser(prog="bash scripts/discuss.sh")
    arguments.add_argument("model", nargs="?")
    arguments.add_argument("question")
    arguments.add_argument("--base-url")
    arguments.add_argument("--name")
    arguments.add_argument("--untrained", action="store_true")
    arguments.add_argument("--domain", choices=DOMAINS, default="math")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--temperature", type=float, default=RequestOptions.temperature)
    return arguments


def target_of(options: argparse.Namespace) -> Target:
    """The models that are asked. Raises ValueError when they cannot be, or there is no question."""
    if (options.model is None) == (options.base_url is None):
        raise ValueError("give either MODEL and QUESTION, or --base-url URL and QUESTION")
    if not options.question.strip():
        raise ValueError('QUESTION is empty: give one in quotes, such as "What is 48 + 23?"')
    if options.base_url is not None:
        return find_remote(options.base_url, model=options.name)
    return find_target(options.model, weights="untrained" if options.untrained else "trained")


def discuss(target: Target, options: argparse.Namespace) -> None:
    """Show what the society, or a single model that plays one, says and comes to."""
    *_, everybody = target.subjects.values()
    config = EvaluationConfig()
    requests = RequestOptions(
        temperature=options.temperature,
        max_tokens=target.max_tokens(config.max_tokens),
        system_prompt=target.system_prompt,
        num_retries=NUM_RETRIES,
    )
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
        )
        solution = asyncio.run(watched(talk, servers))
        show(f"final answer: {final_answer(solution, options.domain)}")


def show(text: str) -> None:
    """Write at once, also where the output is no terminal."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
