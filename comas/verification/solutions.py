"""The verifier on discussions: verdicts by turn, on every solution."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from comas.types import AnswerKey, Discussion, RewardedDiscussion, TurnKey
from comas.utils.progress import progress_bar
from comas.verification.forms import Verdict
from comas.verification.pool import Verifier

Verdicts = Mapping[TurnKey, Verdict]
"""What the verifier says of each solution of a batch."""


def verify_solutions(
    verifier: Verifier, discussions: Sequence[Discussion], *, answers: AnswerKey
) -> Callable[[], Verdicts]:
    """Have every solution judged, beside whatever the caller goes on with; the result waits. None
    is of a question without a reference answer, which an agent has proposed.

    Example: ``verify_solutions(...)() == {("step1/math/17/copy0", "r0.s0"): "correct"}``
    """
    solutions = [
        (d, turn)
        for d in discussions
        if d.question.question_id in answers
        for turn in d.turns
        if turn.role == "solution"
    ]
    items = [
        (d.question.domain, turn.text, answers[d.question.question_id]) for d, turn in solutions
    ]
    turns = [(d.discussion_id, turn.turn_id) for d, turn in solutions]
    pending = verifier.submit(items)

    def wait() -> Verdicts:
        with progress_bar("the last verdicts"):
            return dict(zip(turns, pending.result(), strict=True))

    return wait


def run_tests(verifier: Verifier, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
    """What programs do with tests that agents wrote: (response, evaluation) -> verdict of
    ``comas.verification.coding.verify_test``. No reference answer is part of it."""
    with progress_bar("running tests"):
        return verifier.verify_batch(("test", *pair) for pair in pairs)


def verify_asked(
    verifier: Verifier, rewarded: Sequence[RewardedDiscussion], *, answers: AnswerKey
) -> Callable[[], Verdicts]:
    """Likewise every solution that the reward scheme asked for."""
    asked = [replace(item.discussion, turns=item.discussion.asked) for item in rewarded]
    return verify_solutions(verifier, asked, answers=answers)
