"""How a reward scheme may choose the questions of a step, by what earlier discussions showed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from comas.types import Question, RewardedDiscussion

Choose = Callable[[Sequence[Question], Mapping[str, float], int, Random], list[Question]]
"""(all questions, their notes by id, how many to choose, the step's generator) -> the chosen."""


@dataclass(frozen=True)
class Curriculum:
    """Chooses a step's questions (``choose``), replaces those that teach nothing (``teaches``), or
    both. The functions receive the discussions of one question."""

    choose: Choose | None = None
    """None asks every question once per epoch."""
    note: Callable[[Sequence[RewardedDiscussion]], float | None] = lambda _: None
    """Returns a number to note for the question, which checkpoints keep; None keeps the old."""
    teaches: Callable[[Sequence[RewardedDiscussion]], bool] | None = None
    """Tells whether the rewards teach anything; if not, the step discusses another question."""
    max_draws: int = 1
    """With ``teaches``: the maximum number of batches that a step discusses."""
