"""``comas serve``: a society behind one address that speaks OpenAI's protocol."""

import asyncio
import logging
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from comas.interaction.door import MAX_IN_FLIGHT, Asked, Choice, Door, RefusalError, choice_of
from comas.types import Generation
from comas.utils.client import MAX_SEED, Client, RefusedPromptError, RequestError, RequestOptions
from comas.utils.concurrency import run_all
from comas.utils.interrupts import run
from comas.utils.invocation import CommandParser
from comas.utils.terminal import command
from evaluation.config import EvaluationConfig
from evaluation.execution import served, watched
from evaluation.models import Target, find_target
from evaluation.server import Servers

log = logging.getLogger("serve")


@command("serve", "comas.utils.progress")
def main(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C; returns the exit status."""
    parser = CommandParser("serve")
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key")
    parser.add_argument("--untrained", action="store_true")
    options = parser.parse_args(arguments)
    if not 0 <= options.port < 2**16:
        parser.error(f"--port is up to 65535, or 0 for any that is free, not {options.port}")
    if options.key is not None and not re.fullmatch("[!-~]+", options.key):
        parser.error("--key has to consist of ASCII letters, digits and signs, without spaces")
    target = find_target(options.model, weights="untrained" if options.untrained else "trained")
    config, door = EvaluationConfig(), Door(options.port)
    with (
        TemporaryDirectory(prefix="comas-serve-") as logs,
        served(target, logs=Path(logs), config=config) as servers,
    ):
        run(watched(_serve(target, servers, config, door, options.key), servers))
    return 0


class ServedAgents:
    """Answers requests by asking the agents' servers."""

    def __init__(self, client: Client) -> None:
        self.models = [f"agent_{index}" for index in range(client.num_models)]
        self._client = client

    async def complete(self, asked: Asked) -> list[Choice]:
        """Answer a request. Raises RefusalError."""
        seed = secrets.randbelow(MAX_SEED) if asked.seed is None else asked.seed
        try:
            return await run_all(self._choice(asked, seed + number) for number in range(asked.n))
        except RefusedPromptError as error:
            raise RefusalError(400, "context_length_exceeded", str(error)) from error
        except RequestError as error:
            raise RefusalError(502, "no_answer", str(error)) from error

    async def _choice(self, asked: Asked, seed: int) -> Choice:
        reply = await self._client.complete(
            [message.in_words() for message in asked.messages],
            model_index=self.models.index(asked.model),
            seed=seed & MAX_SEED,
            temperature=asked.temperature,
            max_tokens=asked.max_tokens,
            stop=asked.stop,
            tools=asked.offered,
        )
        tokens = range(reply.prompt_tokens), range(reply.completion_tokens)
        said = Generation(*tokens, reply.response, (), reply.finish_reason, policy_version=0)
        return choice_of(f"chatcmpl-{secrets.token_hex(8)}", said, asked)


async def _serve(
    target: Target, servers: Servers, config: EvaluationConfig, door: Door, key: str | None
) -> None:
    """Answer requests until this is cancelled."""
    *_, everybody = target.subjects.values()
    requests = RequestOptions(
        temperature=1.0,  # OpenAI's
        max_tokens=target.max_tokens(config.max_tokens),
        system_prompt=target.system_prompt,
    )
    async with Client([servers.endpoints[index] for index in everybody], requests) as client:
        guest = ServedAgents(client)
        with door.open(guest, key) as key:
            log.info("serving %s as %s", target.title, ", ".join(guest.models))
            log.info("at most %d requests at once of %d tokens", MAX_IN_FLIGHT, requests.max_tokens)
            log.info("OPENAI_BASE_URL=%s/v1 OPENAI_API_KEY=%s", door.url, key)
            await asyncio.Event().wait()
