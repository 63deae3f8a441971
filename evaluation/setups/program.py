"""Programs that ask by OpenAI's protocol, as setups: ``setups=[program:my_team.py:solve]`` is what
``interaction.program=my_team.py:solve`` trains."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from comas.config.plugins import check_call
from comas.config.schema import Program
from comas.interaction.door import Asked, Choice, RefusalError, choice_of, the_door
from comas.interaction.program_runs import PROGRAMS, ProgramError, Solve, read_result, run_program
from comas.types import Generation, Message, Question
from comas.utils.replies import RefusedPromptError, RequestError
from evaluation.types import Ask, BenchmarkTask, Setup

NUM_AGENTS = 16
"""Agents that a program may name; agent i is model i modulo the number of models."""

Say = Callable[[Sequence[Message], int, str, Asked], Awaitable[str]]
"""Returns the text that agent i says to a chat; also given a name of the turn and the request."""


class TextGuest:
    """Answers a program's requests with texts of models that are not trained."""

    def __init__(self, say: Say, num_agents: int) -> None:
        self.models = [f"agent_{index}" for index in range(num_agents)]
        self.last: str | None = None
        """The last answer."""
        self._say = say
        self._numbers = [0] * num_agents

    async def complete(self, asked: Asked) -> list[Choice]:
        """Answer a request for chat completions. Raises RefusalError."""
        if asked.model not in self.models:
            known = ", ".join(self.models)
            raise RefusalError(404, "model_not_found", f"no model {asked.model!r}; name {known}")
        agent = self.models.index(asked.model)
        first = self._numbers[agent]
        self._numbers[agent] += asked.n
        numbers = range(first, first + asked.n)
        return await asyncio.gather(*(self._choice(agent, number, asked) for number in numbers))

    async def _choice(self, agent: int, number: int, asked: Asked) -> Choice:
        chat = [message.in_words() for message in asked.messages]
        name = f"r{number}.s{agent}"
        try:
            text = await self._say(chat, agent, name, asked)
        except RefusedPromptError as error:
            raise RefusalError(400, "context_length_exceeded", str(error)) from error
        except RequestError as error:
            raise RefusalError(502, "no_answer", str(error)) from error
        choice = choice_of(name, Generation((), (), text, (), "stop", policy_version=0), asked)
        self.last = choice.text
        return choice


def setup_of(solve: Solve) -> Setup:
    """Return the setup in which a function asks the models."""
    check_call(solve, "question", "base_url")
    name = f"{solve.__module__}:{solve.__qualname__}"
    PROGRAMS.setdefault(name, solve)
    program = Program.model_validate({"function": name})

    async def flow(task: BenchmarkTask, ask: Ask) -> str:
        async def say(chat: Sequence[Message], agent: int, label: str, asked: Asked) -> str:
            return await ask(chat, label=label, speaker=agent)

        guest = TextGuest(say, NUM_AGENTS)
        question = Question(task.task_id, task.form, task.question)
        with the_door().open(guest) as key:
            try:
                answer, _ = read_result(await run_program(program, question, key))
            except ProgramError as error:
                raise RequestError(f"the program failed: {error}") from error
        return answer or guest.last or ""

    return Setup(flow, num_speakers=NUM_AGENTS)
