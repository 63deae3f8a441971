"""The nouns of an evaluation: tasks, setups, calls and answers.

A ``Setup`` turns a ``BenchmarkTask`` into an ``Answer`` by ``Call``s to models; graders then judge
the answer.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from comas.types import ROLE_LETTERS, Message
from comas.verification.forms import AnswerForm

ROLE_OF_LETTER = {letter: role for role, letter in ROLE_LETTERS.items()}


@dataclass(frozen=True)
class BenchmarkTask:
    """One item of a benchmark, as models get it and graders judge it.

    Example: ``BenchmarkTask("gsm8k/17", "math", "What is 48 + 23?", "What is 48 + 23?\\n\\n...
    Put the final answer in \\\\boxed{}.", "71")``
    """

    task_id: str
    form: AnswerForm
    question: str
    """The bare question, for setups with prompts of their own."""
    query: str
    """The question with the sentence that asks for a form of answer."""
    gold: str


@dataclass(frozen=True)
class Call:
    """One request to a model and its reply."""

    label: str
    """Its position in the setup's flow, unique per task: "sample 2", "round 1, agent 0".
    Sorted alphabetically, the labels of a setup follow its flow."""
    speaker: int
    """Which part of the setup this is; see ``Setup``."""
    messages: tuple[Message, ...]
    response: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    thinking: str = ""
    """What the model thought, which is no part of ``response``."""


@dataclass(frozen=True)
class Answer:
    """A setup's answer to a task under one seed: the text to grade, and the whole transcript."""

    task_id: str
    seed: int
    response: str
    calls: tuple[Call, ...]
    """Sorted by label: concurrent calls end in any order."""


def role_of(label: str) -> str:
    """Return the role of a call: ``r0.s0.e0`` is an evaluation; in other setups, ``sample 2`` is a
    sample."""
    last = label.rpartition(".")[2]
    return ROLE_OF_LETTER.get(last[0], "") if "." in label else label.split()[0]


class Ask(Protocol):
    """Asks the model of a speaker for a setup, which never learns where that model runs."""

    num_models: int
    """How many models share the speakers' parts."""

    async def __call__(self, messages: Sequence[Message], *, label: str, speaker: int = 0) -> str:
        """The reply's text. Raises RequestError when none comes in spite of all retries."""
        ...


@dataclass(frozen=True)
class Setup:
    """A way to answer a task with one or more calls.

    Speaker i is played by model i modulo the number of models: a single model plays every
    speaker, in a society each is another agent.
    """

    flow: Callable[[BenchmarkTask, Ask], Awaitable[str]]
    """Who is asked what, and in which order; returns the response that is graded."""
    num_speakers: int
    """Where this depends on the size of the society: the speakers of a single model."""
