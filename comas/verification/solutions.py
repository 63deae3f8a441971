"""Verdicts on all solutions of discussions, by turn."""

from collections.abc import Callable, Mapping, Sequence

from comas.types import AnswerKey, Discussion, TurnKey
from comas.utils.progress import progress_bar
from comas.verification.forms import Verdict
from comas.verification.pool import Verifier

Verdicts = Mapping[TurnKey, Verdict]
"""The verdict on each solution of a batch."""


def verify_solutions(
    verifier: Verifier, discussions: Sequence[Discussion], *, answers: AnswerKey
) -> Callable[[], Verdicts]:
    """Start judging every solution; call the result to wait for the verdicts, such as
    ``{("step1/math/17/copy0", "r0.s0"): "correct"}``."""
    solutions = [(d, turn) for d in discussions for turn in d.solutions()]
    items = [
        (d.question.domain, turn.text, answers[d.question.question_id]) for d, turn in solutions
    ]
    turns = [(d.discussion_id, turn.turn_id) for d, turn in solutions]
    pending = verifier.submit(items)

    def wait() -> Verdicts:
        with progress_bar("the last verdicts"):
            return dict(zip(turns, pending.result(), strict=True))

    return wait
