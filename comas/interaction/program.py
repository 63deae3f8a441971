"""Programs that hold discussions (``interaction.program``): each asks the agents at an address of
its own (``comas/interaction/door.py``), and every completion becomes a turn.
"""

import asyncio
import json
import logging
import secrets
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from comas.config.schema import Interaction, Program
from comas.interaction.criticism import criticise
from comas.interaction.discussion import Critics, OpenDiscussion, Submission
from comas.interaction.door import (
    Asked,
    AskedMessage,
    Choice,
    RefusalError,
    choice_of,
    overlook_closed_loops,
    the_door,
)
from comas.interaction.held import HeldDiscussion, Outcome
from comas.interaction.program_runs import MARK_VARIABLE, ProgramError, read_result, run_program
from comas.types import Chat, Generation, Request, Role, Turn
from comas.utils.processes import end_processes
from comas.utils.seeds import sampling_seed

log = logging.getLogger(__name__)


class ByProgram:
    """The schedule of ``interaction.program``: the program asks the agents, and its final answer is
    criticised as a solution is, by critics drawn uniformly."""

    def __init__(self, rules: Interaction) -> None:
        program = rules.chosen_program
        assert program is not None
        self._program = program
        self.roles = tuple(Role(*declared) for declared in (program.roles or {}).items())

    def __call__(
        self,
        discussions: Sequence[OpenDiscussion],
        *,
        num_agents: int,
        rules: Interaction,
        rng: Random,
    ) -> list[Coroutine[None, None, None]]:
        """Return the coroutine that holds each discussion."""
        at_once = asyncio.Semaphore(self._program.concurrency)
        batch = _Batch(self._program, at_once, len(discussions))
        return [_hold(discussion, batch, num_agents=num_agents) for discussion in discussions]


@dataclass
class _Batch:
    """What the programs of a batch share."""

    program: Program
    at_once: asyncio.Semaphore
    num_left: int
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    has_failed: bool = False

    async def end_one(self) -> None:
        """Note that a program has ended; after the last, kill what any of them left running."""
        self.num_left -= 1
        if self.num_left == 0 and self.program.command is not None:
            await asyncio.to_thread(end_processes, variable=MARK_VARIABLE, value=self.mark)


async def _hold(discussion: OpenDiscussion, batch: _Batch, *, num_agents: int) -> None:
    asyncio.get_running_loop().set_exception_handler(overlook_closed_loops)
    guest = DiscussionGuest(discussion, batch.program, num_agents=num_agents)
    returned, error = None, ""
    async with batch.at_once:
        with the_door().open(guest) as key:
            running = asyncio.create_task(
                run_program(batch.program, discussion.question, key, mark=batch.mark)
            )
            try:
                await asyncio.wait({running, guest.broken}, return_when="FIRST_COMPLETED")
                if guest.broken.done():
                    guest.broken.result()  # an engine's error, which is no program's fault
                returned = running.result()
            except ProgramError as failure:
                error = str(failure)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await guest.leave()
                await batch.end_one()
    try:
        answer, rewards = read_result(returned)
        paid = guest.rewards_of(rewards)
    except ProgramError as failure:
        answer, paid, error = None, {}, str(failure)
    if not guest.said:
        error = error or "it asked no agent for anything"
    if error and not batch.has_failed:  # once in a batch
        batch.has_failed = True
        log.warning("interaction.program, in %s, %s", discussion.discussion_id, error)
    final = None if error else guest.conclude(answer)
    outcome = Outcome(
        None if final is None else final.turn_id,
        paid,
        error,
        num_rewritten=guest.num_rewritten,
        num_concurrent=guest.num_concurrent,
    )
    discussion.closed = partial(HeldDiscussion, outcome=outcome)
    if final is not None:
        draw = partial(discussion.rng.randrange, num_agents)
        critics = [Critics(draw(), draw()) for _ in range(discussion.rules.num_evaluations)]
        submissions = (
            Submission(discussion, final, each, index, ()) for index, each in enumerate(critics)
        )
        await asyncio.gather(*map(criticise, submissions))


class DiscussionGuest:
    """Answers the requests of one discussion's program by asking agents, and keeps the turns.

    Requests are numbered for each agent by itself: request 2 of agent 0 is turn ``r2.s0``. Turn ids
    and seeds follow from these numbers, so they do not depend on which agent is faster.
    """

    def __init__(self, discussion: OpenDiscussion, program: Program, *, num_agents: int) -> None:
        self.models = [f"agent_{index}" for index in range(num_agents)]
        self.said: list[Turn] = []
        """The turns so far, in the order in which they were answered."""
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with the error of an engine."""
        self.num_rewritten = self.num_concurrent = 0
        self._discussion = discussion
        self._tokens_left = program.max_tokens
        self._takes_any_role = program.roles is None
        self._numbers = [0] * num_agents
        self._in_flight = Counter[int]()
        self._answers: dict[tuple[int, str], tuple[Generation, list[dict[str, Any]]]] = {}
        """(agent, chat with its answer) -> the answer and the tools of which its prompt tells."""
        self._tasks = set[asyncio.Task[list[Choice]]]()

    async def complete(self, asked: Asked) -> list[Choice]:
        """Answer a request for chat completions. Raises RefusalError."""
        task = asyncio.create_task(self._complete(asked))
        self._tasks.add(task)
        try:
            await asyncio.wait({task})
        finally:
            self._tasks.discard(task)
        if task.cancelled():
            raise RefusalError(403, "discussion_ended", "the discussion has ended")
        if (error := task.exception()) is not None:
            if not isinstance(error, RefusalError):
                if not self.broken.done():
                    self.broken.set_exception(error)
                error = RefusalError(500, "internal_error", "the society failed")
            raise error
        return task.result()

    async def leave(self) -> None:
        """Cancel the requests that are not answered yet."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self.broken.done():
            _ = self.broken.exception()  # known, and raised by whoever waited for it
        else:
            self.broken.cancel()

    def conclude(self, answer: str | None) -> Turn:
        """Chain the turns, each the parent of the next, and return the final answer: the last
        completion with the text ``answer`` (None: any), or else that text as a given turn."""
        fitting = [t for t in self.said if answer is None or t.text.strip() == answer.strip()]
        last = (fitting or self.said)[-1]
        chain = [*(turn for turn in self.said if turn is not last), last]
        for before, turn in zip([None, *chain], chain, strict=False):
            parent = None if before is None else before.turn_id
            final = self._discussion.keep(replace(turn, parent_turn_id=parent))
        if fitting and final.role == "solution":
            return final
        text = final.text if answer is None else answer
        return self._discussion.give("solution", final.agent_index, text, parent=final)

    def rewards_of(self, rewards: Mapping[str, float]) -> dict[str, float]:
        """Return the reward of each turn, by the most particular name that it has among
        ``rewards``. Raises ProgramError for a name of nobody."""
        names = {t.turn_id: (t.turn_id, self.models[t.agent_index], "*") for t in self.said}
        if unknown := ", ".join(sorted(rewards.keys() - {*self.models, "*", *names})):
            raise ProgramError(f"it returned a reward for {unknown}, which is no turn or agent")
        return {
            turn_id: next(rewards[name] for name in its if name in rewards)
            for turn_id, its in names.items()
            if not rewards.keys().isdisjoint(its)
        }

    async def _complete(self, asked: Asked) -> list[Choice]:
        role = asked.role or "solution"
        if self._takes_any_role:
            with suppress(ValueError):
                self._discussion.roles = {role: Role(role, "helps"), **self._discussion.roles}
        if role not in self._discussion.roles:
            raise RefusalError(
                400,
                "unknown_role",
                f"no role {role!r}; name one of {', '.join(self._discussion.roles)}, or declare it "
                "in interaction.program.roles",
            )
        if self._tokens_left <= 0:
            raise RefusalError(403, "budget_used_up", "interaction.program.max_tokens are used up")
        agent = self.models.index(asked.model)
        self.num_concurrent += self._in_flight[agent] > 0
        first = self._numbers[agent]
        self._numbers[agent] += asked.n
        chat, prompt, told = self._chat(agent, asked)
        self._in_flight[agent] += 1
        try:
            numbers = range(first, first + asked.n)
            asking = (self._ask(agent, role, n, asked, chat, prompt, told) for n in numbers)
            return await asyncio.gather(*asking)
        finally:
            self._in_flight[agent] -= 1

    async def _ask(
        self,
        agent: int,
        role: str,
        number: int,
        asked: Asked,
        chat: Chat,
        prompt: str,
        told: list[dict[str, Any]],
    ) -> Choice:
        discussion = self._discussion
        turn_id = discussion.name_of(role, agent, parent=None, round_index=number)
        own_seed = () if asked.seed is None else (asked.seed,)
        request = Request(
            agent,
            prompt,
            (discussion.discussion_id, turn_id),
            role,
            sampling_seed(discussion.seed_text, self.models[agent], number, *own_seed),
            tools=asked.offered,
            chat=chat,
        )
        generation = await discussion.generate(request)
        if generation is None:
            discussion.num_overlong_prompts += 1
            raise RefusalError(
                400,
                "context_length_exceeded",
                "the chat has more than rollout.max_prompt_tokens, or the model's chat template "
                "does not take such a chat",
            )
        self._tokens_left -= generation.num_sampled_tokens
        self.said.append(discussion.keep(Turn(turn_id, None, 0, role, agent, prompt, generation)))
        choice = choice_of(turn_id, generation, asked)
        said = [*asked.messages, AskedMessage.model_validate(choice.message)]
        self._answers.setdefault((agent, _key(said)), (generation, told))
        return choice

    def _chat(self, agent: int, asked: Asked) -> tuple[Chat, str, list[dict[str, Any]]]:
        """Return the chat that the agent answers, its new messages as one text, and the tools of
        which it tells."""
        messages = asked.messages
        spoken = [index for index, m in enumerate(messages, start=1) if m.role == "assistant"]
        at = spoken[-1] if spoken else 0
        said, told = self._answers.get((agent, _key(messages[:at])), (None, []))
        follows: Sequence[int] = ()
        if said is None or any(tool not in told for tool in asked.offered):
            self.num_rewritten += at > 0
            at, told = 0, asked.offered
        else:
            follows = [*said.prompt_token_ids, *said.response_token_ids]
        chat = [message.in_words() for message in messages]
        new = chat[at:]
        prompt = "\n\n".join(f"{m['role']}: {m['content']}" for m in new)
        if [m["role"] for m in new] == ["user"]:
            prompt = new[0]["content"]
        limit = min(asked.max_tokens or self._tokens_left, self._tokens_left)
        return Chat(chat, follows, at, limit, tuple(asked.stop)), prompt, told


def _key(messages: Sequence[AskedMessage]) -> str:
    """Return a text that is equal for chats which differ in white space around messages alone."""
    return json.dumps([[m.role, m.content.strip(), m.calls] for m in messages], sort_keys=True)
