"""Programs that hold discussions (``interaction.program``): each asks the agents at an address of
its own (``comas/interaction/door.py``), and every completion becomes a turn."""

import asyncio
import json
import logging
import secrets
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from comas.config.schema import Interaction, Program
from comas.interaction import held
from comas.interaction.criticism import criticise
from comas.interaction.discussion import Critics, OpenDiscussion, Submission
from comas.interaction.door import (
    Asked,
    AskedMessage,
    Choice,
    RefusalError,
    before_stop,
    choice_of,
    overlook_closed_loops,
    the_door,
)
from comas.interaction.held import HeldDiscussion, Outcome
from comas.interaction.program_runs import MARK_VARIABLE, ProgramError, read_result, run_program
from comas.types import Chat, Generation, Question, Request, Role, ToolDescription, Turn
from comas.utils.processes import end_processes
from comas.utils.seeds import sampling_seed
from comas.utils.terminal import excerpt, printable

log = logging.getLogger(__name__)

ENDED = (403, "discussion_ended", "the discussion has ended")
Tools = Sequence[ToolDescription]


class ByProgram:
    """The schedule of ``interaction.program``: the program asks the agents, and its final answer is
    criticised as a solution is, by critics drawn uniformly."""

    def __init__(self, rules: Interaction) -> None:
        program = rules.chosen_program
        assert program is not None
        self._program = program
        self.roles = tuple(Role(*declared) for declared in (program.roles or {}).items())

    def __call__(
        self, discussions: Sequence[OpenDiscussion], *, num_agents: int, **_: object
    ) -> list[Coroutine[None, None, None]]:
        """Return the coroutine that holds each discussion."""
        self._at_once = asyncio.Semaphore(self._program.concurrency)
        self._mark = secrets.token_hex(8)
        self._num_left = len(discussions)
        self._has_failed = False
        return [self._hold(discussion, num_agents) for discussion in discussions]

    async def _hold(self, discussion: OpenDiscussion, num_agents: int) -> None:
        guest = DiscussionGuest(discussion, self._program, num_agents=num_agents)
        final, returned, rewards, error = None, None, {}, ""
        try:
            async with self._at_once:
                returned = await self._run(discussion.question, guest)
            answer, named = read_result(returned)
            if not guest.said:
                raise ProgramError("it asked no agent for anything")
            rewards = guest.rewards_of(named)
            final = guest.conclude(answer)
        except ProgramError as failure:
            error = printable(str(failure))
            if not self._has_failed:  # said once in a batch
                log.warning("interaction.program, in %s, %s", discussion.discussion_id, error)
            self._has_failed = True
        outcome = Outcome(
            None if final is None else final.turn_id,
            rewards,
            "" if returned is None else excerpt(str(returned)),
            error,
            guest.asked,
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

    async def _run(self, question: Question, guest: "DiscussionGuest") -> Any:
        """Return what the program returns. Raises ProgramError."""
        asyncio.get_running_loop().set_exception_handler(overlook_closed_loops)
        try:
            with the_door().open(guest) as key:
                return await run_program(self._program, question, key, mark=self._mark)
        finally:
            guest.leave()
            self._num_left -= 1
            if self._num_left == 0 and self._program.command is not None:
                # What any of them has left running.
                await asyncio.to_thread(end_processes, variable=MARK_VARIABLE, value=self._mark)


class _Answer(NamedTuple):
    turn_id: str | None
    token_ids: Sequence[int]
    """Token ids of the whole chat, with the answer."""
    told: Tools
    """The tools that the chat describes."""


class DiscussionGuest:
    """Answers the requests of one discussion's program by asking agents, and keeps the turns.

    Each agent's requests are numbered separately: request 2 of agent 0 is turn ``r2.s0``. Turn ids
    and seeds follow from these numbers, so they do not depend on which agent is faster.
    """

    def __init__(self, discussion: OpenDiscussion, program: Program, *, num_agents: int) -> None:
        self.models = [f"agent_{index}" for index in range(num_agents)]
        self.said: list[Turn] = []
        """The turns so far, in the order in which they were answered."""
        self.asked: dict[str, held.Asked] = {}
        """Turn id -> its request, in the order of requests."""
        self.num_rewritten = self.num_concurrent = 0
        self._discussion = discussion
        self._takes_any_role = program.roles is None
        self._tokens_left = program.max_tokens
        self._numbers = [0] * num_agents
        self._asking: dict[asyncio.Task[Generation | None], int] = {}
        """Requests in flight, each with its agent."""
        self._answers: dict[tuple[int, str], _Answer] = {}
        """(agent, chat with its answer) -> the answer."""
        self._has_ended = False

    async def complete(self, asked: Asked) -> list[Choice]:
        """Answer a request for chat completions. Raises RefusalError."""
        if self._has_ended:
            raise RefusalError(*ENDED)
        role, agent = self._role_of(asked), self.models.index(asked.model)
        if self._tokens_left <= 0:
            raise RefusalError(403, "budget_used_up", "interaction.program.max_tokens are used up")
        chat, continued = self._chat(agent, asked)
        first = self._numbers[agent]
        self._numbers[agent] += asked.n
        requests = [self._request(agent, role, first + i, asked, chat) for i in range(asked.n)]
        kept = held.Asked(chat.messages[chat.num_followed :], continued.turn_id, asked.tool_names)
        self.asked |= {request.turn[1]: kept for request in requests}
        self.num_concurrent += agent in self._asking.values()
        tasks = self._discussion.tasks
        assert tasks is not None, "discussions run in schedules.hold, which an error ends"
        asking = [tasks.create_task(self._generate(request)) for request in requests]
        self._asking.update(dict.fromkeys(asking, agent))
        await asyncio.wait(asking)
        if self._has_ended or any(task.cancelled() or task.exception() for task in asking):
            raise RefusalError(*ENDED)
        for task in asking:
            del self._asking[task]
        answers = zip(requests, [task.result() for task in asking], strict=True)
        return [self._keep(request, said, asked, continued.told) for request, said in answers]

    def leave(self) -> None:
        """Cancel the requests that are not answered yet."""
        self._has_ended = True
        for task in self._asking:
            task.cancel()

    def conclude(self, answer: str | None) -> Turn:
        """Chain the turns, each the parent of the next, and return the final answer: the last
        completion with the text ``answer``, of a solution if there is one (None: any), or else that
        text as a given turn."""
        fitting = [t for t in self.said if answer is None or t.text.strip() == answer.strip()]
        fitting.sort(key=lambda turn: answer is not None and turn.role == "solution")
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
        """Return the reward of each turn: that of its id, else of its agent, else of ``*``. Raises
        ProgramError for any other name."""
        names = {t.turn_id: (t.turn_id, self.models[t.agent_index], "*") for t in self.said}
        if unknown := ", ".join(sorted(rewards.keys() - {*self.models, "*", *names})):
            raise ProgramError(f"it returned a reward for {unknown}, which is no turn or agent")
        return {
            turn_id: next(rewards[name] for name in its if name in rewards)
            for turn_id, its in names.items()
            if not rewards.keys().isdisjoint(its)
        }

    def _role_of(self, asked: Asked) -> str:
        """Return the role of a request. Raises RefusalError for one that is not declared."""
        role, roles = asked.role or "solution", self._discussion.roles
        if self._takes_any_role:
            with suppress(ValueError):
                self._discussion.roles = roles = {role: Role(role, "helps"), **roles}
        if role not in roles:
            known = f"name one of {', '.join(roles)}, or declare it in interaction.program.roles"
            raise RefusalError(400, "unknown_role", f"no role {role!r}; {known}")
        return role

    def _chat(self, agent: int, asked: Asked) -> tuple[Chat, _Answer]:
        """Return the chat for the agent, and its earlier answer that the chat continues."""
        spoken = [i for i, m in enumerate(asked.messages, start=1) if m.role == "assistant"]
        at = spoken[-1] if spoken else 0
        earlier = self._answers.get((agent, _key(asked.messages[:at])))
        if earlier is None or any(tool not in earlier.told for tool in asked.offered):
            self.num_rewritten += at > 0 and earlier is None
            at, earlier = 0, _Answer(None, (), asked.offered)
        limit = min(asked.max_tokens or self._tokens_left, self._tokens_left)
        words = [message.in_words() for message in asked.messages]
        return Chat(words, earlier.token_ids, at, limit, tuple(asked.stop), asked.offered), earlier

    def _request(self, agent: int, role: str, number: int, asked: Asked, chat: Chat) -> Request:
        discussion = self._discussion
        name = discussion.name_of(role, agent, parent=None, round_index=number)
        own_seed = () if asked.seed is None else (asked.seed,)
        return Request(
            agent,
            chat.messages[-1]["content"],
            (discussion.discussion_id, name),
            role,
            sampling_seed(discussion.seed_text, self.models[agent], number, *own_seed),
            chat=chat,
        )

    async def _generate(self, request: Request) -> Generation | None:
        return await self._discussion.generate(request)

    def _keep(self, request: Request, said: Generation | None, asked: Asked, told: Tools) -> Choice:
        """Keep an answer as a turn. Raises RefusalError if there is none."""
        if said is None:
            self._discussion.num_overlong_prompts += 1
            raise RefusalError(
                400,
                "context_length_exceeded",
                "the chat is too long (rollout.max_prompt_tokens), or of a form that the model's "
                "chat template refuses",
            )
        agent, name = request.agent_index, request.turn[1]
        self._tokens_left -= len(said.response_token_ids)
        shown = replace(said, response_text=before_stop(said.response_text, asked.stop))
        turn = Turn(name, None, 0, request.role, agent, request.prompt, shown)
        self.said.append(self._discussion.keep(turn))
        choice = choice_of(name, said, asked)
        chat = [*asked.messages, AskedMessage.model_validate(choice.message)]
        answer = _Answer(name, [*said.prompt_token_ids, *said.response_token_ids], told)
        self._answers.setdefault((agent, _key(chat)), answer)
        return choice


def _key(messages: Sequence[AskedMessage]) -> str:
    """Return a text that is equal for chats that differ only in white space around messages."""
    return json.dumps([[m.role, m.content.strip(), m.tool_calls] for m in messages], sort_keys=True)
