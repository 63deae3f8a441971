"""Engines that answer and train in no time: what is left is what the driver and Ray take."""

from __future__ import annotations

import asyncio
import random
from array import array
from pathlib import Path
from typing import Any

from comas.engines.cluster.actors import PolicyActor, RolloutActor
from comas.engines.rollout.connection import Endpoint, Orders, Request, receive, send
from comas.types import Generation, UpdateStats

VOCABULARY = 152_000
PROMPT_TOKENS = 1000
MEDIAN_TOKENS = 200
SIGMA = 0.6


def scripted_answer(request: Request, *, policy_version: int) -> Generation:
    """A response of log-normal length that its seed decides, in the tokens of a large vocabulary,
    with a solution, a score and words enough for its tokens."""
    draw = random.Random(request.seed)
    num_tokens = round(draw.lognormvariate(0.0, SIGMA) * MEDIAN_TOKENS) + 1
    text = f"{'some words ' * (num_tokens // 2)}\\boxed{{{draw.randrange(9)}}}"
    return Generation(
        array("i", draw.choices(range(VOCABULARY), k=PROMPT_TOKENS)),
        array("i", draw.choices(range(VOCABULARY), k=num_tokens)),
        f"{text} <score>{draw.randrange(1, 4)}</score>",
        array("d", (-draw.random() for _ in range(num_tokens))),
        "stop",
        policy_version,
    )


class ScriptedRollout(RolloutActor):
    """Says something over the connection of a real engine."""

    def __init__(self, model: str, config: Any, **others: Any) -> None:
        self._version = 0

    async def call(self, method: str, *arguments: Any, **named: Any) -> None:
        """Serve, and note how often weights came; all else takes no time."""
        if method == "serve":
            await self._serve(*arguments)
        elif method == "count_updates_from":
            self._version = arguments[0]

    async def take_weights(self) -> None:
        """Count an update."""
        self._version += 1

    async def _serve(self, endpoint: Endpoint) -> None:
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.write(endpoint.password)
        try:
            while (orders := await receive(reader)) is not None:
                await send(writer, self._answers(orders))
        finally:
            writer.close()

    def _answers(self, orders: Orders) -> dict[int, Generation]:
        return {
            number: scripted_answer(request, policy_version=self._version)
            for number, request in orders.requests.items()
        }


class ScriptedPolicy(PolicyActor):
    """Takes a buffer, and learns nothing from it."""

    def start(self, rendezvous: Any) -> None:
        """Load nothing."""

    def connect(self, engines: Any) -> None:
        """Know who serves the weights that there are none of."""
        self._engines = engines

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """An update's report, of advantages of 0; a model is an empty folder."""
        if method == "save_model":
            Path(arguments[1]).mkdir()
        if method != "update":
            return None
        return {
            policy: UpdateStats(
                learning_rate=1e-6,
                num_samples=len(samples),
                num_tokens=sum(len(own.response_token_ids) for own in samples),
                num_optimizer_steps=1,
                advantages=tuple(array("f", [0.0]) * len(o.response_token_ids) for o in samples),
            )
            for policy, samples in arguments[0].items()
        }

    def send_weights(self, policies: Any) -> None:
        """Have the engines count an update."""
        import ray

        if self.rank == 0:
            ray.get([engine.take_weights.remote() for engine in self._engines])

    def write_checkpoint(self) -> None:
        """Write nothing."""
