"""The verifier on discussions: verdicts by turn, on every solution."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from comas.types import AnswerKey, Discussion, TurnKey
from comas.verification.pool import Verifier
from comas.verification.verdict import Verdict

Verdicts = Mapping[TurnKey, Verdict]
"""What the verifier says of each solution of a batch."""


@dataclass(frozen=True)
class PendingSolutions:
    """Verdicts under way on the solutions ``turns``."""

    turns: tuple[TurnKey, ...]
    pending: Future[list[Verdict]]

    def result(self) -> Verdicts:
        """Wait for all of them."""
        return dict(zip(self.turns, self.pending.result(), strict=True))


def verify_solutions(
    verifier: Verifier, discussions: Sequence[Discussion], *, answers: AnswerKey
) -> PendingSolutions:
    """Have every solution judged, beside whatever the caller goes on with.

    Example: ``verify_solutions(...).result() == {("step1/math/17/copy0", "r0.s0"): "correct"}``
    """
    solutions = [(d, turn) for d in discussions for turn in d.turns if turn.role == "solution"]
    items = [
        (d.question.domain, turn.text, answers[d.question.question_id]) for d, turn in solutions
    ]
    turns = tuple((d.discussion_id, turn.turn_id) for d, turn in solutions)
    return PendingSolutions(turns, verifier.submit(items))
