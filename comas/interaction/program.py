"""Programs that hold discussions (``interaction.program``): each asks the agents at an address of
its own (``comas/interaction/door.py``), and every completion becomes a turn.

A function has the rights of any plug-in: it runs in a thread of this process. A command runs as the
same user in a process of its own, without the run's environment. Neither is told the gold answer.
"""

import asyncio
import json
import logging
import os
import secrets
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable
from math import isfinite
from random import Random
from tempfile import TemporaryFile
from typing import IO, Any

from comas.config.paths import find
from comas.config.plugins import Registry, check_call
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
from comas.types import ROLE_LETTERS, Chat, Generation, Outcome, Question, Request, Turn
from comas.utils.interrupts import run
from comas.utils.processes import end_processes
from comas.utils.seeds import sampling_seed
from comas.utils.terminal import excerpt

log = logging.getLogger(__name__)

Solve = Callable[[Question, str], Any]
"""Answers a question by asking the agents at an address; may be a coroutine function. Returns the
final answer (None: the last completion is it), or rewards: one number for all turns, or numbers by
the names of turns (the ids of completions), agents (``agent_0``) or ``*``, and perhaps an
``answer``."""

GRACE_S = 2.0
"""After its deadline, how long a function has to end."""
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
"""What a command gets of this process's environment."""
MARK_VARIABLE = "COMAS_PROGRAM"
"""Marks the processes that the commands of a batch have started."""
MAX_OUTPUT = 2**20
"""Bytes that a command may print."""
POLL_S = 0.02


def _as_program(found: Any) -> Solve | None:
    if not callable(found):
        return None
    check_call(found, "question", "base_url")
    return found


PROGRAMS: Registry[Solve] = Registry(
    {},
    group="comas.programs",
    wanted="an async function of a question and a base URL",
    adapt=_as_program,
)


class ProgramError(Exception):
    """What went wrong with a program, in its own discussion."""


def by_program(
    discussions: Sequence[OpenDiscussion], *, num_agents: int, rules: Interaction, rng: Random
) -> list[Coroutine[None, None, None]]:
    """The schedule of ``interaction.program``: the program asks the agents, and its final answer is
    criticised as a solution is, by critics drawn uniformly."""
    program = rules.chosen_program
    assert program is not None
    batch = _Batch(program, asyncio.Semaphore(program.concurrency), len(discussions))
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
    max_tokens = batch.program.max_tokens
    guest = DiscussionGuest(discussion, num_agents=num_agents, max_tokens=max_tokens)
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
                await asyncio.wait({running})
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
    discussion.outcome = Outcome(
        None if final is None else final.turn_id,
        paid,
        error,
        num_rewritten=guest.num_rewritten,
        num_concurrent=guest.num_concurrent,
    )
    if final is not None:
        draw = partial(discussion.rng.randrange, num_agents)
        critics = [Critics(draw(), draw()) for _ in range(discussion.rules.num_evaluations)]
        submissions = (
            Submission(discussion, final, each, index, ()) for index, each in enumerate(critics)
        )
        await asyncio.gather(*map(criticise, submissions))


# ---------------------------------------------------------------- what it asks, and is answered


class DiscussionGuest:
    """Answers the requests of one discussion's program by asking agents, and keeps the turns.

    Requests are numbered for each agent by itself: request 2 of agent 0 is turn ``r2.s0``. Turn ids
    and seeds follow from these numbers, so they do not depend on which agent is faster.
    """

    def __init__(self, discussion: OpenDiscussion, *, num_agents: int, max_tokens: int) -> None:
        self.models = [f"agent_{index}" for index in range(num_agents)]
        self.said: list[Turn] = []
        """The turns so far, in the order in which they were answered."""
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with the error of an engine."""
        self.num_rewritten = self.num_concurrent = 0
        self._discussion = discussion
        self._tokens_left = max_tokens
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
        if asked.model not in self.models:
            raise RefusalError(
                404, "model_not_found", f"no model {asked.model!r}; name {', '.join(self.models)}"
            )
        role = asked.role or "solution"
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
            choices = await asyncio.gather(
                *(
                    self._ask(agent, role, first + i, asked, chat, prompt, told)
                    for i in range(asked.n)
                )
            )
        finally:
            self._in_flight[agent] -= 1
        return choices

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
        turn_id = f"r{number}.{ROLE_LETTERS.get(role, role)}{agent}"
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
        follows, told = self._answers.get((agent, _key(messages[:at])), (None, []))
        if follows is None or any(tool not in told for tool in asked.offered):
            self.num_rewritten += at > 0
            follows, told = None, asked.offered
        words = [message.in_words() for message in messages]
        new = words if follows is None else words[at:]
        prompt = "\n\n".join(f"{m['role']}: {m['content']}" for m in new)
        if [m["role"] for m in new] == ["user"]:
            prompt = new[0]["content"]
        limit = min(asked.max_tokens or self._tokens_left, self._tokens_left)
        return Chat(words, follows, len(messages) - at, limit, tuple(asked.stop)), prompt, told


def _key(messages: Sequence[AskedMessage]) -> str:
    """Return a text that is equal for chats which differ in white space around messages alone."""
    return json.dumps([[m.role, m.content.strip(), m.calls] for m in messages], sort_keys=True)


# ---------------------------------------------------------------- how it runs, and what it returns


async def run_program(program: Program, question: Question, key: str, *, mark: str = "") -> Any:
    """Return what the program returns, whose commands carry ``mark``. Raises ProgramError."""
    question = replace(question, columns={})  # labels among them
    try:
        if program.command is not None:
            return await _execute(
                program.command, question, key, timeout_s=program.timeout_s, mark=mark
            )
        assert program.function is not None
        url = f"{the_door().url}/{key}/v1"
        solve = PROGRAMS[program.function]
        return await _call(solve, question, url, timeout_s=program.timeout_s)
    except TimeoutError as error:
        raise ProgramError(f"it did not end within {program.timeout_s:g} s") from error


async def _call(solve: Solve, question: Question, url: str, *, timeout_s: float) -> Any:
    """Call a function in a thread, which is left alone where it does not end in time."""
    loop = asyncio.get_running_loop()
    answered = loop.create_future()

    def tell(error: BaseException | None, value: Any = None) -> None:
        if not answered.done():
            answered.set_exception(error) if error else answered.set_result(value)

    async def within() -> None:
        said: tuple[BaseException | None, Any]
        try:
            async with asyncio.timeout(timeout_s):
                found = solve(question, url)
                value = await found if isawaitable(found) else found
            said = (None, value)
        except TimeoutError as error:
            said = (error, None)
        except BaseException as error:  # whatever a program may raise, sys.exit() too
            said = (ProgramError(f"{type(error).__name__}: {error}"), None)
        with suppress(RuntimeError):  # the discussion, and its loop, have ended
            loop.call_soon_threadsafe(tell, *said)

    thread = threading.Thread(target=lambda: run(within()), daemon=True, name="program")
    thread.start()
    try:
        return await asyncio.wait_for(answered, timeout_s + GRACE_S)
    except TimeoutError:
        if thread.is_alive():
            log.warning(
                "a call of interaction.program goes on beyond its deadline, in a thread that "
                "cannot be ended; run it as a command, which can"
            )
        raise


async def _execute(
    command: Sequence[str], question: Question, key: str, *, timeout_s: float, mark: str
) -> Any:
    """Run a command, and kill its process group at the end. The last line of its output may be a
    JSON object with rewards; else all of the output is the answer."""
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    environment |= {
        "OPENAI_BASE_URL": f"{the_door().url}/v1",
        "OPENAI_API_KEY": key,
        "COMAS_QUESTION_ID": question.question_id,
        MARK_VARIABLE: mark,
    }
    # Files, as a pipe ends only when all that inherited it have ended.
    with TemporaryFile() as asked, TemporaryFile() as output, TemporaryFile() as errors:
        asked.write(question.text.encode(errors="replace"))
        asked.seek(0)
        try:
            process = subprocess.Popen(
                [str(find(word) or word) if "/" in word else word for word in command],
                stdin=asked,
                stdout=output,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise ProgramError(f"{command[0]} cannot be started: {error.strerror}") from error
        try:
            async with asyncio.timeout(timeout_s):
                while process.poll() is None:
                    if max(os.fstat(f.fileno()).st_size for f in (output, errors)) > MAX_OUTPUT:
                        raise ProgramError(f"it printed more than {MAX_OUTPUT} bytes")
                    await asyncio.sleep(POLL_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said, complaint = map(_text_in, (output, errors))
    if process.returncode != 0:
        last = (complaint.splitlines() or ["it says nothing"])[-1]
        raise ProgramError(f"it ended with status {process.returncode}: {last}")
    *before, last = said.splitlines() or [""]
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(last), dict):
            return {"answer": "\n".join(before), **found} if before else found
    return said or None


def _text_in(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MAX_OUTPUT).decode(errors="replace").strip()


def read_result(returned: Any) -> tuple[str | None, dict[str, float]]:
    """Return the answer and the rewards that a program returned. Raises ProgramError.

    Example: ``{"agent_0": 1, "answer": "71"}`` is ``("71", {"agent_0": 1.0})``, and ``0.5`` is
    ``(None, {"*": 0.5})``.
    """
    if returned is None or isinstance(returned, str):
        return returned, {}
    rewards = dict(returned) if isinstance(returned, Mapping) else {"*": returned}
    answer = rewards.pop("answer", None)
    try:
        paid = {str(name): float(value) for name, value in rewards.items()}
    except (TypeError, ValueError, OverflowError) as error:
        raise ProgramError(f"it returned {excerpt(str(returned))}: {error}") from error
    if not all(map(isfinite, paid.values())):
        raise ProgramError(f"it returned rewards that are not finite: {excerpt(str(rewards))}")
    return None if answer is None else str(answer), paid
