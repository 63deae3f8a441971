"""The data types of an evaluation: a ``Setup`` answers a ``BenchmarkTask`` by ``Call``s to models,
and graders judge the ``Answer``."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from comas.types import ROLE_LETTERS, Chat, Domain, Message

ROLE_OF_LETTER = {letter: role for role, letter in ROLE_LETTERS.items()}


@dataclass(frozen=True)
class BenchmarkTask:
    """An item of a benchmark.

    Example: ``BenchmarkTask("gsm8k/17", "math", "What is 48 + 23?", "What is 48 + 23?\\n\\n...
    Put the final answer in \\\\boxed{}.", "71")``
    """

    task_id: str
    form: Domain
    question: str
    """The bare question, for setups with their own prompts."""
    query: str
    """The question with a sentence that asks for the form of the answer."""
    gold: str


@dataclass(frozen=True)
class Call:
    """A request to a model and its reply."""

    label: str
    """Its position in the setup's flow, unique per task: "sample 2", "round 1, agent 0". The
    alphabetical order of labels is that of the flow."""
    speaker: int
    """See ``Setup``."""
    messages: tuple[Message, ...]
    response: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    thinking: str = ""
    """The model's thinking, not part of ``response``."""


@dataclass(frozen=True)
class Answer:
    """A setup's answer to a task under one seed: the text to grade, and the transcript."""

    task_id: str
    seed: int
    response: str
    calls: tuple[Call, ...]
    """Sorted by label, since concurrent calls end in any order; a program's as they ended."""


def role_of(label: str) -> str:
    """Return the role of a call: evaluation for ``r0.s0.e0``, sample for ``sample 2``."""
    name = label.rpartition(".")[2].rstrip("0123456789")
    return ROLE_OF_LETTER.get(name, name) if "." in label else label.split()[0]


class Ask(Protocol):
    """Asks the model of a speaker on behalf of a setup."""

    num_models: int

    async def __call__(self, messages: Sequence[Message], *, label: str, speaker: int = 0) -> str:
        """Return the reply's text. Raises RequestError when all retries fail."""
        return (await self.answer(Chat(messages), label=label, speaker=speaker)).response

    async def answer(self, chat: Chat, *, label: str, speaker: int) -> Call:
        """Do the same within the limits of ``chat``, and return the whole reply."""
        ...


@dataclass(frozen=True)
class Setup:
    """A way to answer a task with one or more calls. Speaker i is played by model i modulo the
    number of models."""

    flow: Callable[[BenchmarkTask, Ask], Awaitable[str]]
    """Makes the calls; returns the response to grade."""
    num_speakers: int
    """If this depends on the size of the society: the speakers of a single model."""
    program: str = ""
    """What identifies a program, whose calls are unknown before it runs: it is not rehearsed."""
    at_once: int | None = None
    """Tasks that it answers at a time; None for as many as ``concurrency`` says."""
