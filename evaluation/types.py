"""Data types of an evaluation.

A ``Setup`` makes ``Call``s to models to turn a ``BenchmarkTask`` into an ``Answer``, which graders
judge.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from comas.types import ROLE_LETTERS, Message
from comas.verification.forms import AnswerForm

ROLE_OF_LETTER = {letter: role for role, letter in ROLE_LETTERS.items()}


@dataclass(frozen=True)
class BenchmarkTask:
    """One item of a benchmark.

    Example: ``BenchmarkTask("gsm8k/17", "math", "What is 48 + 23?", "What is 48 + 23?\\n\\n...
    Put the final answer in \\\\boxed{}.", "71")``
    """

    task_id: str
    form: AnswerForm
    question: str
    """The bare question, for setups with their own prompts."""
    query: str
    """The question with a closing sentence on the form of the answer."""
    gold: str


@dataclass(frozen=True)
class Call:
    """One request to a model and its reply."""

    label: str
    """Position in the setup's flow, unique per task: "sample 2", "round 1, agent 0". Alphabetical
    order is the order of the flow."""
    speaker: int
    """Index of the speaker in the setup; see ``Setup``."""
    messages: tuple[Message, ...]
    response: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    thinking: str = ""
    """The model's thinking, which ``response`` excludes."""


@dataclass(frozen=True)
class Answer:
    """A setup's answer to a task under one seed: the text to grade, and the whole transcript."""

    task_id: str
    seed: int
    response: str
    calls: tuple[Call, ...]
    """Sorted by label, since concurrent calls end in any order."""


def role_of(label: str) -> str:
    """Return the role of a call: evaluation for ``r0.s0.e0``, or sample for ``sample 2``."""
    last = label.rpartition(".")[2]
    return ROLE_OF_LETTER.get(last[0], "") if "." in label else label.split()[0]


class Ask(Protocol):
    """Asks the model of a speaker, wherever it runs."""

    num_models: int
    """Number of models that the speakers share."""

    async def __call__(self, messages: Sequence[Message], *, label: str, speaker: int = 0) -> str:
        """Return the reply's text. Raises RequestError if all retries fail."""
        ...


@dataclass(frozen=True)
class Setup:
    """A way to answer a task with one or more calls.

    Model ``i % num_models`` plays speaker i: a single model plays all speakers, and in a society
    each speaker is another agent.
    """

    flow: Callable[[BenchmarkTask, Ask], Awaitable[str]]
    """Makes the calls, and returns the response to grade."""
    num_speakers: int
    """Number of speakers; if it depends on the society's size, that for a single model."""
