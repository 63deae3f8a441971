"""The judge: a model behind an OpenAI-compatible address that has roles of the discussion in the
place of agents (``society.judge``), and that nobody trains."""

import asyncio
import logging
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from comas.config.schema import Config, Judge, for_agent
from comas.types import Generation, Metrics, Request
from comas.utils.client import (
    Client,
    Endpoint,
    OverlongPromptError,
    RefusedError,
    Reply,
    RequestError,
    RequestOptions,
    UnusableReplyError,
    fault_of_address,
    list_models,
    with_system_prompt,
)
from comas.utils.interrupts import run
from comas.utils.thinking import KNOWN_MARKS, ThinkingMarks

T = TypeVar("T")
log = logging.getLogger(__name__)

NUM_RETRIES = 1
"""Of the client, which follows Retry-After, before the run says that it waits."""
DEADLINE_S = 600.0
"""For an answer."""
PAUSE_S = 5.0
"""From a failure to the next try."""
SAID_EVERY_S = 60.0
"""Between two lines about a judge that does not answer."""
MAX_UNUSABLE = 3
"""How often an answer may be unusable before the run ends."""
NO_KEY = "none"
COUNTS = ("requests", "prompt_tokens", "response_tokens", "waited_s")


def find_judge(judge: Judge) -> str:
    """Return what answers at the judge's address.

    Raises ValueError when the address is none, refuses the key, or does not serve the model.
    """
    if fault := fault_of_address(judge.base_url, key_in="what society.judge.api_key_env names"):
        raise ValueError(f"society.judge.base_url {fault[0]}: {fault[1]}")
    key = _api_key(judge)
    try:
        models = list_models(judge.base_url, key)
    except ValueError as error:
        raise ValueError(
            _without(f"{error}, and does society.judge.api_key_env name its key?", key)
        ) from None
    if judge.model not in models:
        raise ValueError(
            f"society.judge.model={judge.model}: {judge.base_url} does not serve it. Name one of "
            f"{', '.join(models) or 'its models, of which it lists none'}"
        )
    return f"at {judge.base_url}"


class JudgeClient:
    """Asks the judge for turns, and waits where its address does not answer."""

    def __init__(self, judge: Judge, config: Config) -> None:
        """Raise ValueError where the judge's key is not in the environment."""
        self.roles = frozenset(judge.roles)
        self._judge = judge
        self._system_prompt = config.rollout.system_prompt
        self._temperature = config.rollout.temperature
        self._key = _api_key(judge)
        self._options = RequestOptions(
            max_tokens=config.rollout.longest_response,
            timeout_s=DEADLINE_S,
            num_retries=NUM_RETRIES,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._counts = defaultdict[str, float](float)
        self._waits_since: float | None = None
        self._has_said_so = False
        self._next_line_at = 0.0

    async def generate(self, request: Request) -> Generation | None:
        """Return the judge's answer, asked for until it comes; None: the prompt is too long.

        Raises ValueError when the judge refuses, or gives no usable answer again and again.
        """
        chat = with_system_prompt(
            [{"role": "user", "content": request.prompt}], self._system_prompt
        )
        temperature = request.temperature
        if temperature is None:  # that of the agent in whose place it speaks
            temperature = for_agent(self._temperature, request.agent_index)
        try:
            reply = await self._insist(
                lambda client: client.complete(
                    chat, model_index=0, seed=request.seed, temperature=temperature
                ),
                on=" ".join(request.turn),
            )
        except OverlongPromptError:
            return None
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

    def logprobs(self, generations: Sequence[Generation]) -> list[list[float]]:
        """Return the log-probs of each response's tokens after its prompt under the judge, at
        temperature 1; 0 of what was not sampled.

        Raises ValueError where its address gives none, or it spells the tokens otherwise.
        """

        async def ask() -> list[list[float]]:
            return await asyncio.gather(*map(self._logprobs, generations))

        return run(ask())

    async def _logprobs(self, said: Generation) -> list[float]:
        token_ids = [*said.prompt_token_ids, *said.response_token_ids]
        try:
            scored = await self._insist(
                lambda client: client.logprobs(token_ids, model_index=0), on="log-probs"
            )
        except OverlongPromptError as error:
            raise ValueError(
                _without(f"society.judge cannot read it: {error}", self._key)
            ) from None
        self._counts["requests"] += 1
        self._counts["prompt_tokens"] += len(token_ids)
        spelled, logprobs = zip(*scored[len(said.prompt_token_ids) :], strict=True)
        read = "".join(spelled)
        letters = _letters(read)
        for line in _said_alone(said).splitlines():
            if _letters(line) not in letters:
                raise ValueError(
                    f"society.judge.model={self._judge.model} has another tokenizer than a policy: "
                    f"it reads {read[:40]!r}, where {line[:40]!r} was said. Distil from a model of "
                    "the same family"
                )
        sampled = said.sampled or [True] * len(logprobs)
        return [
            each if by_policy else 0.0 for each, by_policy in zip(logprobs, sampled, strict=True)
        ]

    async def _insist(self, ask: Callable[[Client], Awaitable[T]], *, on: str) -> T:
        """Return the answer, asked for until it comes. Raises OverlongPromptError, and ValueError
        when the judge refuses, or gives no usable answer again and again."""
        num_unusable = 0
        while True:
            try:
                found = await ask(self._client())
            except OverlongPromptError:
                raise
            except RequestError as error:
                num_unusable += isinstance(error, UnusableReplyError)
                if isinstance(error, RefusedError) or num_unusable == MAX_UNUSABLE:
                    said = f"society.judge, asked for {on}: {error}"
                    raise ValueError(_without(said, self._key)) from None
                self._begin_to_wait(error)
                await asyncio.sleep(PAUSE_S)
            else:
                self._end_waiting()
                return found

    def take_metrics(self) -> Metrics:
        """Return what was asked since the last call."""
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
            marks = ThinkingMarks(*KNOWN_MARKS[0])
            endpoint = Endpoint(self._judge.base_url, self._judge.model, self._key, thinking=marks)
            self._loop, self._open = loop, Client([endpoint], self._options)
            self._closing = loop.create_task(_close_at_end(self._open))
        return self._open

    def _count(self, reply: Reply) -> None:
        self._counts["requests"] += 1
        self._counts["answers"] += 1
        self._counts["prompt_tokens"] += reply.prompt_tokens
        self._counts["response_tokens"] += reply.completion_tokens
        self._counts["truncated"] += reply.finish_reason == "length"

    def _end_waiting(self) -> None:
        if self._waits_since is not None:
            waited_s = time.monotonic() - self._waits_since
            self._counts["waited_s"] += waited_s
            if self._has_said_so:
                log.warning("the judge answers again after %.0f s", waited_s)
            self._waits_since, self._has_said_so = None, False

    def _begin_to_wait(self, error: RequestError) -> None:
        now = time.monotonic()
        self._waits_since = self._waits_since or now
        if now >= self._next_line_at:
            self._has_said_so, self._next_line_at = True, now + SAID_EVERY_S
            reason = _without(str(error), self._key)
            log.warning("the run waits for its judge %s: %s", self._judge.model, reason)


async def _close_at_end(client: Client) -> None:
    """Close the client's connections as its event loop ends, which cancels this task."""
    async with client:
        await asyncio.Event().wait()


def _api_key(judge: Judge) -> str:
    if judge.api_key_env is None:
        return NO_KEY
    if key := os.environ.get(judge.api_key_env):
        return key
    raise ValueError(
        f"society.judge.api_key_env={judge.api_key_env}: there is no such environment variable. "
        "Export it, or set it to null if the address wants no key"
    )


def _said_alone(said: Generation) -> str:
    """The text of a response without its tool calls, whose answers a chat template writes in a way
    of its own."""
    text = said.response_text
    for call in reversed(said.calls or ()):
        text = f"{text[: call.start]}\n{text[call.end :]}"
    return text


def _letters(text: str) -> str:
    """What decoding token by token leaves as it is: no spaces, no parts of a character."""
    return "".join(each for each in text if each.isascii() and not each.isspace())


def _without(text: str, key: str) -> str:
    """What a server says may repeat the key that it was sent."""
    return text if key == NO_KEY else text.replace(key, "***")
