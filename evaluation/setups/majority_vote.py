"""Majority vote: the answer that most of five samples agree on (5 calls per task).

The samples are those of Consistency: same requests, same seeds. Programs agree when their text
does. Correct ones need not, so where all programs differ the first one is taken.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from comas.interaction.setup_prompts import CONSISTENCY_SAMPLES
from comas.verification.boxed import last_boxed, last_boxed_list
from comas.verification.choice import read_letter
from comas.verification.coding import last_python_block
from comas.verification.forms import AnswerForm
from comas.verification.latex import spelling
from comas.verification.science import RELATIVE_TOLERANCE, read_number
from evaluation.setups.paper import draw_samples
from evaluation.types import Ask, BenchmarkTask, Setup


@dataclass(frozen=True)
class Ballot:
    """The way to count votes for one form of answer."""

    read: Callable[[str], str | None]
    """The answer in a response, or None."""
    agree: Callable[[str, str], bool]
    """Returns True if two answers are the same."""


async def answer(task: BenchmarkTask, ask: Ask) -> str:
    """Sample, then count."""
    return elect(await draw_samples(task, ask), ballot=BALLOTS[task.form])


def elect(responses: Sequence[str], *, ballot: Ballot) -> str:
    r"""The response whose answer agrees with the most responses; on a tie, the first.

    A response without an answer has no vote; if none has one, the first response is returned.

    Example: of ``\boxed{7}``, ``\boxed{8}``, ``\boxed{8.0}`` as numbers, the second.
    """
    answers = [ballot.read(response) for response in responses]

    def num_votes(index: int) -> int:
        mine = answers[index]
        if mine is None:
            return 0
        return sum(ballot.agree(mine, other) for other in answers if other is not None)

    return responses[max(range(len(responses)), key=num_votes)]


def same_number(answer: str, other: str) -> bool:
    """True if two science answers are equal within the tolerance of their grader."""
    values, others = read_number(answer), read_number(other)
    return any(
        abs(a - b) <= RELATIVE_TOLERANCE * max(abs(a), abs(b)) for a in values for b in others
    )


def same_letter(answer: str, other: str) -> bool:
    """True if two answers name the same option."""
    letter = read_letter(answer)
    return letter is not None and letter == read_letter(other)


def _lines(program: str) -> list[str]:
    return [line.rstrip() for line in program.splitlines() if line.strip()]


BALLOTS: dict[AnswerForm, Ballot] = {
    # 0.5 and 1/2 are not written the same.
    "math": Ballot(last_boxed_list, lambda one, other: spelling(one) == spelling(other)),
    "science": Ballot(last_boxed_list, same_number),
    "choice": Ballot(last_boxed_list, same_letter),
    "reasoning": Ballot(last_boxed, str.__eq__),
    "coding": Ballot(last_python_block, lambda one, other: _lines(one) == _lines(other)),
}

MAJORITY_VOTE = Setup(answer, num_speakers=CONSISTENCY_SAMPLES)
