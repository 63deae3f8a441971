"""What a reward scheme may have besides: a choice of the questions that a step asks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from comas.types import Question, RewardedDiscussion


@dataclass(frozen=True)
class Curriculum:
    """Which questions a step asks, by a number that is noted of each as it is discussed and that
    checkpoints hold."""

    note: Callable[[Sequence[RewardedDiscussion]], float | None]
    """Of one question's discussions; None: what was noted before stays."""
    choose: Callable[[Sequence[Question], Mapping[str, float], int, Random], list[Question]]
    """All questions, what is noted by their ids, how many to ask, and the step's own generator
    to those that are asked."""
