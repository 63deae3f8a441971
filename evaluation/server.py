"""vLLM's OpenAI-compatible servers, one per model, for the duration of a block."""

import asyncio
import logging
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Self

import httpx

from comas.types import Device
from comas.utils.chat import ChatEncoder
from comas.utils.client import Endpoint
from comas.utils.model_folder import load_tokenizer
from comas.utils.progress import progress_bar
from evaluation.config import EvaluationConfig
from evaluation.models import LocalModel
from evaluation.server_command import (
    HOST,
    check_host_memory,
    free_ports,
    groups_of,
    plan_slots,
    server_arguments,
    server_environment,
    threads_of_servers,
)
from evaluation.server_process import GRACE_S, KEY_VARIABLE, end_server, key_headers

log = logging.getLogger(__name__)

POLL_S = 0.2
WATCH_S = 1.0
START_TIMEOUT_S = 900.0
"""Limit for the start of all servers."""
ANSWER_TIMEOUT_S = 2.0
NUM_SHOWN_LINES = 12
EXCEPTION = re.compile(
    r"(?:\(\S+ pid=\d+\) )?(?:ERROR .*?\] )?((?:\w+\.)*\w*(?:Error|Exception): .+)"
)
CHATTER = ("nanobind: ", " - ", "See https://nanobind")
"""Beginnings of the lines that a library prints at the end of every vLLM process."""


class Servers:
    """Ready servers: our own, or remote endpoints."""

    def __init__(self, endpoints: Sequence[Endpoint], started: "Sequence[_Server]" = ()) -> None:
        self.endpoints = endpoints
        """In the order of the models."""
        self._started = started

    async def watch(self) -> NoReturn:
        """Raise RuntimeError as soon as one of our own servers has died."""
        while True:
            for server in self._started:
                server.check()
            await asyncio.sleep(WATCH_S)


@contextmanager
def serve(
    models: Sequence[LocalModel], *, logs: Sequence[Path], config: EvaluationConfig, device: Device
) -> Iterator[Servers]:
    """Serve the models on the loopback interface during the block, to clients with their keys.

    LoRA adapters of the same model share a server, which logs to the first one's file of ``logs``.
    Servers start concurrently, or one after another if they share GPUs. All their processes end
    with the block, or with this process.

    Raises:
        RuntimeError: with the end of its log, if a server died or did not start in time.
        ValueError: GPUs or memory are too few, or a chat template cannot be used.
    """

    def encoder_of(model: LocalModel) -> ChatEncoder:
        tokenizer, kwargs = load_tokenizer(model.folder), model.template_kwargs
        return ChatEncoder(tokenizer, folder=model.folder, template_kwargs=kwargs)

    groups = groups_of(models)
    slots = plan_slots(len(groups), config=config, device=device)
    if device == "cpu":
        check_host_memory([models[group[0]] for group in groups], config)
    ports = free_ports(len(groups))
    share_gpus = bool(slots[0].gpus) and len({slot.gpus for slot in slots}) < len(slots)
    threads = 1 if device == "cuda" else threads_of_servers(models, num_servers=len(groups))
    started = time.monotonic()
    deadline = started + START_TIMEOUT_S
    with ExitStack() as stack:
        servers: list[_Server] = []
        for group, slot, port in zip(groups, slots, ports, strict=True):
            served = [models[index] for index in group]
            server = _Server(
                served[0],
                port=port,
                arguments=server_arguments(served, port=port, slot=slot, config=config),
                environment=server_environment(
                    slot, key=secrets.token_urlsafe(32), threads=threads
                ),
                log_path=logs[group[0]],
            )
            servers.append(stack.enter_context(server))
            # Trap: servers that start on one GPU at once disturb each other's memory profiling.
            if share_gpus:
                server.wait_until_ready(deadline)
        with progress_bar("loading models"), ThreadPoolExecutor(1) as thread:
            encoders = thread.map(encoder_of, models)
            for server in servers:
                server.wait_until_ready(deadline)
        log.info("all servers ready after %.0f s", time.monotonic() - started)
        server_of = {i: each for group, each in zip(groups, servers, strict=True) for i in group}
        endpoints = [
            Endpoint(
                f"http://{HOST}:{server_of[i].port}/v1",
                str(model.adapter or model.folder),
                server_of[i].environment[KEY_VARIABLE],
                chats,
                thinking=chats.thinking,
            )
            for i, (model, chats) in enumerate(zip(models, encoders, strict=True))
        ]
        yield Servers(endpoints, servers)


@dataclass
class _Server:
    """A context manager that starts and stops one server."""

    model: LocalModel
    port: int
    arguments: Sequence[str]
    environment: dict[str, str] = field(repr=False)  # contains the key
    log_path: Path

    def __enter__(self) -> Self:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "evaluation.server_process", *self.arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                # Keep Ctrl-C in a terminal from the server: only we stop it.
                start_new_session=True,
            )
        where = f"{HOST}:{self.port} (log: {self.log_path})"
        log.info("starting the server of %s on %s", self.model.folder, where)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2 * GRACE_S)
        end_server(self._key)  # in case its guard was killed or frozen

    @property
    def _key(self) -> str:
        return self.environment[KEY_VARIABLE]

    def wait_until_ready(self, deadline: float) -> None:
        """Return when the server answers. Raises RuntimeError if it died or takes too long."""
        while not self._is_ready():
            self.check()
            if time.monotonic() > deadline:
                raise self._lost(f"did not start within {START_TIMEOUT_S:g} s")
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raise RuntimeError if the server has died."""
        if (status := self._process.poll()) is not None:
            raise self._lost(f"died with exit status {status}")

    def _lost(self, what: str) -> RuntimeError:
        with self.log_path.open("rb") as file:
            file.seek(self._log_start)
            text = file.read().decode(errors="replace")
        lines = [line for line in text.splitlines() if not line.startswith(CHATTER)]
        shown = "\n  ".join([*exceptions_in(lines), "...", *lines[-NUM_SHOWN_LINES:]])
        return RuntimeError(
            f"the server of {self.model.folder} {what}. From {self.log_path}:\n  {shown}"
        )

    def _is_ready(self) -> bool:
        try:
            reply = httpx.get(
                f"http://{HOST}:{self.port}/health",
                headers=key_headers(self._key),
                timeout=ANSWER_TIMEOUT_S,
                trust_env=False,  # no proxy
            )
        except httpx.TransportError:
            return False
        return reply.is_success


def exceptions_in(lines: Sequence[str]) -> list[str]:
    """Return the exceptions in a log, whose cause is far above its end: ``"ValueError: too long"``
    of ``"(EngineCore pid=7) ERROR 11-21 02:25 [core.py:9] ValueError: too long"``."""
    found = (EXCEPTION.match(line) for line in lines)
    return list(dict.fromkeys(match[1] for match in found if match))
