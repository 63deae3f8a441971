"""vLLM's own OpenAI-compatible servers, one per model, for the duration of a block."""

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
import psutil

from comas.types import Device
from comas.utils.chat import ChatEncoder
from comas.utils.model_folder import load_tokenizer
from comas.utils.progress import progress_bar
from evaluation.client import Endpoint
from evaluation.config import EvaluationConfig
from evaluation.models import LocalModel
from evaluation.server_command import (
    HOST,
    free_ports,
    groups_of,
    plan_slots,
    server_arguments,
    server_environment,
)
from evaluation.server_process import GRACE_S, KEY_VARIABLE, key_headers, kill

log = logging.getLogger(__name__)

POLL_S = 0.2
WATCH_S = 1.0
START_TIMEOUT_S = 900.0
"""Limit on the start of the servers."""
ANSWER_TIMEOUT_S = 2.0
HANG_S = 120.0
"""Without a token in spite of open requests, or without an answer; a step takes seconds at most."""
MAX_RESTARTS = 3
"""How often one server is started again: what fails more often will go on failing."""
PROGRESS = (
    *("num_requests_running", "num_requests_waiting"),
    *("prompt_tokens_total", "generation_tokens_total"),
)
"""Metrics of a server that move while it works: requests that it has, tokens dealt with."""
METRIC = re.compile(r"^vllm:(\w+)(?:\{.*\})? (\S+)$", re.MULTILINE)
NUM_SHOWN_LINES = 12
EXCEPTION = re.compile(
    r"(?:\(\S+ pid=\d+\) )?(?:ERROR .*?\] )?((?:\w+\.)*\w*(?:Error|Exception): .+)"
)
CHATTER = ("nanobind: ", " - ", "See https://nanobind")
"""How the many lines begin that a library leaves at the end of every vLLM process."""


class ServerError(RuntimeError):
    """A server did not start, or died; the message holds the end of its log."""


class Servers:
    """Servers that are ready: our own, or somebody else's endpoints."""

    def __init__(self, endpoints: Sequence[Endpoint], own: "Sequence[_Server]" = ()) -> None:
        self.endpoints = endpoints
        """Where each model is served, in the order of the models."""
        self._own = own

    async def watch(self) -> NoReturn:
        """Raise ServerError as soon as one of our own has died, or hangs."""
        while True:
            for server in self._own:
                await asyncio.to_thread(server.check_pulse)
            await asyncio.sleep(WATCH_S)

    def restart(self) -> None:
        """Start again what ``watch`` lost; everything that was asked of it has to be asked again.

        Raises ServerError when one does not start, or was lost ``MAX_RESTARTS`` times before.
        """
        for server in self._own:
            if server.is_lost:
                with progress_bar("starting a server again"):
                    server.restart()


@contextmanager
def serve(
    models: Sequence[LocalModel],
    *,
    logs: Sequence[Path],
    config: EvaluationConfig,
    device: Device,
) -> Iterator[Servers]:
    """Serve the models on this machine's loopback interface while the block runs, for whoever has
    the key of their endpoints.

    LoRA adapters of the same model share a server, whose log is that of the first of them.
    They start concurrently, or one after the other if they share GPUs. ``logs[i]`` gets the
    output of model i's server. All processes of the servers are stopped when the block ends, or
    when this process does, in whatever way.

    Raises:
        ServerError: a server died or took longer than ``START_TIMEOUT_S`` to start.
        ValueError: there are too few GPUs, or a chat template cannot be used.
    """
    groups = groups_of(models)
    slots = plan_slots(len(groups), config=config, device=device)
    ports = free_ports(len(groups))
    key = secrets.token_urlsafe(32)
    share_gpus = bool(slots[0].gpus) and len({slot.gpus for slot in slots}) < len(slots)
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
                environment=server_environment(slot, key=key),
                log_path=logs[group[0]],
            )
            servers.append(stack.enter_context(server))
            # Trap: servers that measure the free memory of one GPU at once disturb each other.
            if share_gpus:
                server.wait_until_ready(deadline)
        # Side by side, so counting tells no time.
        with progress_bar("loading models"), ThreadPoolExecutor(1) as thread:
            encoders = thread.map(_encoder_of, models)
            for server in servers:
                server.wait_until_ready(deadline)
        log.info("all servers ready after %.0f s", time.monotonic() - started)
        server_of = {i: each for group, each in zip(groups, servers, strict=True) for i in group}
        chats_of = enumerate(zip(models, encoders, strict=True))
        yield Servers(
            [server_of[i].endpoint_of(model, chats) for i, (model, chats) in chats_of], servers
        )


def _encoder_of(model: LocalModel) -> ChatEncoder:
    return ChatEncoder(
        load_tokenizer(model.folder),
        folder=model.folder,
        template_kwargs=model.chat.template_kwargs,
    )


@dataclass
class _Server:
    """One server; a context manager that starts and stops it."""

    model: LocalModel
    port: int
    arguments: Sequence[str]
    environment: dict[str, str] = field(repr=False)  # it holds the key
    log_path: Path
    is_lost: bool = False
    """True if it died or hangs."""
    num_restarts: int = 0
    _last_progress: tuple[float, ...] | None = None

    def __enter__(self) -> Self:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def endpoint_of(self, model: LocalModel, chats: ChatEncoder) -> Endpoint:
        """Return the endpoint of a model of this server."""
        name = str(model.adapter or model.folder)
        return Endpoint(
            f"http://{HOST}:{self.port}/v1",
            name,
            self.environment[KEY_VARIABLE],
            chats,
            thinking=chats.thinking,
        )

    def wait_until_ready(self, deadline: float) -> None:
        """Return when the server answers. Raises ServerError when it died or is too late."""
        while not self._is_ready():
            self._note_processes()
            self._check()
            if time.monotonic() > deadline:
                raise self._lost(f"did not start within {START_TIMEOUT_S:g} s")
            time.sleep(POLL_S)
        self._note_processes()

    def check_pulse(self) -> None:
        """Raise ServerError if the server has died, or has not moved for ``HANG_S``."""
        progress, now = self._progress(), time.monotonic()
        self._check()  # after it, since what has died does not answer either
        is_idle = progress is not None and not any(progress[:2])
        if is_idle or progress != self._last_progress:
            self._last_progress, self._moved_at = progress, now
        elif now - self._moved_at > HANG_S:
            raise self._lost(f"hangs: for {HANG_S:.0f} s it has not moved")

    def restart(self) -> None:
        """Stop it in whatever state it is, and start it anew."""
        self._stop()
        if self.num_restarts == MAX_RESTARTS:
            num_lost = MAX_RESTARTS + 1
            raise ServerError(f"the server of {self.model.folder} was lost {num_lost} times")
        self.num_restarts += 1
        self._start()
        self.wait_until_ready(time.monotonic() + START_TIMEOUT_S)

    def _start(self) -> None:
        with self.log_path.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "evaluation.server_process", *self.arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                # Ctrl-C in a terminal reaches its whole process group; only we stop the server.
                start_new_session=True,
            )
        self.is_lost = False
        self._processes: set[psutil.Process] = set()
        self._last_progress = None
        self._moved_at = time.monotonic()
        where = f"{HOST}:{self.port} (log: {self.log_path})"
        log.info("starting the server of %s on %s", self.model.folder, where)

    def _stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=2 * GRACE_S)
        except subprocess.TimeoutExpired:  # it is frozen itself, and cannot stop the server
            guard = psutil.Process(self._process.pid)
            kill([*guard.children(recursive=True), guard])
            self._process.wait()
        # What is left if the guard was killed: the port would be taken.
        kill(self._processes)

    def _note_processes(self) -> None:
        with suppress(psutil.NoSuchProcess):
            self._processes |= set(psutil.Process(self._process.pid).children(recursive=True))

    def _check(self) -> None:
        if (status := self._process.poll()) is not None:
            raise self._lost(f"died with exit status {status}")

    def _lost(self, what: str) -> ServerError:
        self.is_lost = True
        with self.log_path.open("rb") as file:
            file.seek(self._log_start)
            text = file.read().decode(errors="replace")
        lines = [line for line in text.splitlines() if not line.startswith(CHATTER)]
        shown = "\n  ".join([*exceptions_in(lines), "...", *lines[-NUM_SHOWN_LINES:]])
        return ServerError(
            f"the server of {self.model.folder} {what}. From {self.log_path}:\n  {shown}"
        )

    def _progress(self) -> tuple[float, ...] | None:
        """Requests that it works on and that wait, and tokens so far; None: it does not answer."""
        reply = self._get("/metrics")
        if reply is None:
            return None
        told = {name: float(value) for name, value in METRIC.findall(reply.text)}
        return tuple(told.get(name, 0.0) for name in PROGRESS)

    def _is_ready(self) -> bool:
        reply = self._get("/health")
        return reply is not None and reply.is_success

    def _get(self, path: str) -> httpx.Response | None:
        """Return its answer; None if there is none."""
        try:
            return httpx.get(
                f"http://{HOST}:{self.port}{path}",
                headers=key_headers(self.environment[KEY_VARIABLE]),
                timeout=ANSWER_TIMEOUT_S,
                trust_env=False,  # not through a proxy from the environment
            )
        except httpx.TransportError:
            return None


def exceptions_in(lines: Sequence[str]) -> list[str]:
    """Return each exception that a log names: the cause of a failure is far above its end.

    Example: ``"(EngineCore pid=7) ERROR 11-21 02:25 [core.py:9] ValueError: too long"`` holds
    ``"ValueError: too long"``.
    """
    found = (EXCEPTION.match(line) for line in lines)
    return list(dict.fromkeys(match[1] for match in found if match))
