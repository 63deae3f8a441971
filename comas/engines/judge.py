"""The judge (``society.judge``): a model behind an OpenAI-compatible endpoint that takes roles of
the discussion in place of the agents, and is not trained."""

import asyncio
import logging
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from comas.config.schema import Config, Judge, for_agent
from comas.engines.cluster.supervision import JudgeError
from comas.types import Chat, Generation, Metrics, Request
from comas.utils.client import Client, RequestOptions, list_models, with_system_prompt
from comas.utils.endpoint import NO_KEY, Endpoint, error_in_address
from comas.utils.interrupts import run
from comas.utils.replies import (
    BadRequestError,
    RefusedError,
    RefusedPromptError,
    Reply,
    RequestError,
    UnusableReplyError,
)
from comas.utils.thinking import KNOWN_MARKS, ThinkingMarks

T = TypeVar("T")
log = logging.getLogger(__name__)

NUM_RETRIES = 1
"""Retries by the client, which obeys Retry-After, before the run logs that it waits."""
DEADLINE_S = 600.0
"""Limit for an answer."""
PAUSE_S = 5.0
"""Between a failure and the next attempt."""
SAID_EVERY_S = 60.0
"""Between two log lines about a judge that does not answer."""
MAX_UNUSABLE = 3
"""Unusable answers before a turn is lost."""
MAX_LOST = 32
"""Turns lost in a row, not because of their prompts, before the run ends."""
TRY_TIMEOUT_S = 120.0
"""Limit for the test question before a run."""
COUNTS = ("requests", "prompt_tokens", "response_tokens", "waited_s", "refused")


def find_judge(judge: Judge, config: Config) -> str:
    """Ask the judge a test question; return where it answers, for the preflight table.

    Raises ValueError when the address is invalid, does not serve the model, or does not answer.
    """
    if error := error_in_address(judge.base_url, key_in="what society.judge.api_key_env names"):
        raise ValueError(f"society.judge.base_url {error[0]}: {error[1]}")
    where = "the variable that society.judge.api_key_env names"
    models = list_models(judge.base_url, _api_key(judge), key_in=where)
    if judge.model not in models:
        raise ValueError(
            f"society.judge.model={judge.model}: {judge.base_url} does not serve it. Name one of "
            f"{', '.join(models) or 'its models (it lists none)'}"
        )
    try:
        reply = run(JudgeClient(judge, config).try_out())
    except RequestError as error:
        raise ValueError(
            f"society.judge.model={judge.model} does not answer a question: {error}. "
            "society.judge.extra_body changes its requests, for example {max_tokens: null, "
            "max_completion_tokens: 4096, temperature: null} for OpenAI's reasoning models"
        ) from error
    if not reply.response and reply.finish_reason == "length":
        raise ValueError(
            f"society.judge.model={judge.model}: its answer to a question was cut off before it "
            "said anything. Raise society.judge.max_tokens, which counts its thinking, or stop it "
            "from thinking by society.judge.extra_body"
        )
    return f"at {judge.base_url}"


class JudgeClient:
    """Requests turns from the judge, and waits while it does not answer."""

    def __init__(self, judge: Judge, config: Config) -> None:
        """Raise ValueError when the judge's key is not in the environment."""
        self.roles = frozenset(judge.roles)
        self._judge = judge
        self._system_prompt = config.rollout.system_prompt
        self._temperature = config.rollout.temperature
        self._endpoint = Endpoint(
            judge.base_url,
            judge.model,
            _api_key(judge),
            thinking=ThinkingMarks(*KNOWN_MARKS[0]),
            extra_body=judge.extra_body,
        )
        self._options = RequestOptions(
            max_tokens=judge.max_tokens or config.rollout.longest_response,
            timeout_s=DEADLINE_S,
            num_retries=NUM_RETRIES,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._counts = defaultdict[str, float](float)
        self._num_lost = 0
        """Turns lost in a row, not because of their prompts."""
        self._num_waiting = 0
        """Requests that have failed and are retried."""
        self._waits_since = self._next_line_at = 0.0

    async def try_out(self) -> Reply:
        """Return the answer to a short question. Raises RequestError if there is none."""
        request = Request(0, "Is 1 + 1 = 2? Say yes or no.", ("", ""), "scoring", seed=0)
        options = replace(self._options, timeout_s=TRY_TIMEOUT_S, num_retries=0)
        async with Client([self._endpoint], options) as client:
            return await self._complete(request, client)

    async def generate(self, request: Request) -> Generation | None:
        """Return the judge's answer, retrying until it comes; None if the judge refuses this prompt
        (too long, content filter, ...).

        Raises JudgeError when the judge refuses all prompts (for example its key).
        """
        turn = " ".join(request.turn)
        try:
            reply = await self._insist(partial(self._complete, request), on=turn)
        except (BadRequestError, UnusableReplyError) as error:
            self._lose(turn, error)
            return None
        self._num_lost = 0
        self._count(reply)
        return Generation(
            prompt_token_ids=(),
            response_token_ids=(),
            response_text=reply.response,
            rollout_logprobs=(),
            finish_reason="length" if reply.finish_reason == "length" else "stop",
            policy_version=0,
            thinking_text=reply.thinking,
            author=self._judge.model,
        )

    async def _complete(self, request: Request, client: Client) -> Reply:
        asked = request.chat or Chat([{"role": "user", "content": request.prompt}])
        temperature = request.temperature
        if temperature is None:  # use that of the agent it replaces
            temperature = for_agent(self._temperature, request.agent_index)
        return await client.complete(
            with_system_prompt(asked.messages, self._system_prompt),
            model_index=0,
            seed=request.seed,
            temperature=temperature,
            max_tokens=asked.max_tokens,
            stop=asked.stop,
            tools=request.tools,
        )

    def _lose(self, turn: str, error: RequestError) -> None:
        """Count an unanswered turn. Raises JudgeError after ``MAX_LOST`` in a row."""
        if not self._counts["refused"]:  # once a step
            log.warning("society.judge, asked for %s: %s. The turn is left out", turn, error)
        self._counts["refused"] += 1
        self._num_lost += not isinstance(error, RefusedPromptError)
        if self._num_lost == MAX_LOST:
            raise JudgeError(f"society.judge left {MAX_LOST} turns in a row unanswered: {error}")

    async def _insist(self, ask: Callable[[Client], Awaitable[T]], *, on: str) -> T:
        """Return the answer, retrying until it comes. Raises BadRequestError, UnusableReplyError
        (after ``MAX_UNUSABLE``), and JudgeError when the judge refuses all requests."""
        num_unusable, waits = 0, False
        while True:
            try:
                found = await ask(self._client())
            except RequestError as error:
                num_unusable += isinstance(error, UnusableReplyError)
                if isinstance(error, BadRequestError) or num_unusable == MAX_UNUSABLE:
                    self._end_waiting(waits)
                    raise
                if isinstance(error, RefusedError):
                    raise JudgeError(f"society.judge, asked for {on}: {error}") from error
                self._wait(error, is_first=not waits)
                waits = True
                await asyncio.sleep(PAUSE_S)
            else:
                self._end_waiting(waits)
                return found

    def take_metrics(self) -> Metrics:
        """Return the counts since the last call."""
        counts, self._counts = self._counts, defaultdict(float)
        answers = counts["answers"]
        metrics: Metrics = {f"judge/{name}": counts[name] for name in COUNTS}
        return metrics | {
            "judge/truncated_rate": counts["truncated"] / answers if answers else None
        }

    def _client(self) -> Client:
        """Return the client of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._open = loop, Client([self._endpoint], self._options)
            self._num_waiting = 0  # requests of an interrupted loop are gone
            self._closing = loop.create_task(_close_at_end(self._open))
        return self._open

    def _count(self, reply: Reply) -> None:
        self._counts["requests"] += 1
        self._counts["answers"] += 1
        self._counts["prompt_tokens"] += reply.prompt_tokens
        self._counts["response_tokens"] += reply.completion_tokens
        self._counts["truncated"] += reply.finish_reason == "length"

    def _wait(self, error: RequestError, *, is_first: bool) -> None:
        """Record a failed request, and log it now and then."""
        now = time.monotonic()
        if is_first:
            self._num_waiting += 1
            if self._num_waiting == 1:
                self._waits_since = self._next_line_at = now
        if now >= self._next_line_at:
            self._next_line_at = now + SAID_EVERY_S
            log.warning("the run waits for its judge %s: %s", self._judge.model, error)

    def _end_waiting(self, waits: bool) -> None:
        """Record the end of a request. The judge answers again when no request is waiting: a slow
        request that never failed says nothing about the others."""
        self._num_waiting -= waits
        if waits and not self._num_waiting:
            waited_s = time.monotonic() - self._waits_since
            self._counts["waited_s"] += waited_s
            log.warning("the judge answers again after %.0f s", waited_s)


async def _close_at_end(client: Client) -> None:
    """Close the client when its event loop ends, which cancels this task."""
    async with client:
        await asyncio.Event().wait()


def _api_key(judge: Judge) -> str:
    if judge.api_key_env is None:
        return NO_KEY
    if key := os.environ.get(judge.api_key_env):
        return key
    raise ValueError(
        f"society.judge.api_key_env={judge.api_key_env}: there is no such environment variable. "
        "Export it, or set it to null if the endpoint needs no key"
    )
