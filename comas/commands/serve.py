"""``comas serve``: a society behind one address that speaks OpenAI's protocol."""

import argparse
import asyncio
import logging
import secrets
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from comas.interaction.door import Asked, Door
from comas.types import Message
from comas.utils.client import MAX_SEED, Client, RequestOptions
from comas.utils.interrupts import run
from comas.utils.invocation import CommandParser
from comas.utils.terminal import command
from evaluation.config import EvaluationConfig
from evaluation.execution import served, watched
from evaluation.models import Target, find_target
from evaluation.server import Servers
from evaluation.setups.program import TextGuest

log = logging.getLogger("serve")


@command(
    *("serve", "evaluation", "comas.utils.progress"),
)
def main(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C; returns the exit status."""
    logging.getLogger("evaluation.server").setLevel(logging.WARNING)  # ports and logs
    options = parser().parse_args(arguments)
    target = find_target(options.model, weights="untrained" if options.untrained else "trained")
    config = EvaluationConfig()
    with (
        TemporaryDirectory(prefix="comas-serve-") as logs,
        served(target, logs=Path(logs), config=config) as servers,
    ):
        run(watched(_serve(target, servers, config, options), servers))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = CommandParser("serve")
    arguments.add_argument("model")
    arguments.add_argument("--port", type=int, default=0)
    arguments.add_argument("--key")
    arguments.add_argument("--untrained", action="store_true")
    return arguments


async def _serve(
    target: Target, servers: Servers, config: EvaluationConfig, options: argparse.Namespace
) -> None:
    """Answer requests until this is cancelled."""
    *_, everybody = target.subjects.values()
    requests = RequestOptions(
        temperature=1.0,  # OpenAI's
        max_tokens=target.max_tokens(config.max_tokens),
        system_prompt=target.system_prompt,
    )
    models = [servers.endpoints[index] for index in everybody]
    async with Client(models, requests) as client:

        async def say(chat: Sequence[Message], agent: int, name: str, asked: Asked) -> str:
            seed = secrets.randbelow(MAX_SEED) if asked.seed is None else asked.seed & MAX_SEED
            number = int(name[1 : name.index(".")]) if asked.n > 1 else 0
            reply = await client.complete(
                chat,
                model_index=agent,
                seed=(seed + number) & MAX_SEED,
                temperature=asked.temperature,
                max_tokens=asked.max_tokens,
            )
            return reply.response

        door = Door(options.port)
        with door.open(TextGuest(say, len(models)), options.key) as key:
            log.info("serving %s as agent_0 to agent_%d", target.title, len(models) - 1)
            log.info("OPENAI_BASE_URL=%s/v1 OPENAI_API_KEY=%s", door.url, key)
            await asyncio.Event().wait()
