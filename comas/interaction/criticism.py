"""Criticisms: how a solution is evaluated and scored, under any schedule.

To add one, write a function and a line in ``CRITICISMS``.
"""

from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Literal, NamedTuple

from comas.config.plugins import Registry, check_call
from comas.interaction.checks import check_history_item, check_roles
from comas.interaction.comparisons import UNTRAINED_EVALUATION, exchanged, muted, self_rated
from comas.interaction.discussion import Submission
from comas.interaction.prompts import EVALUATION_WITH_JUDGMENT, SCORING_ALONE, HistoryItem
from comas.types import Role

Outcome = Literal["scores", "judgments", "ratings"]
"""What a reward scheme can read: scores of evaluations, judgments within evaluations that nobody
scores, or an agent's ratings of its own solutions."""


class Criticism(NamedTuple):
    """A way to criticise solutions."""

    criticise: Callable[[Submission], Awaitable[HistoryItem | None]]
    """Returns what later rounds may see, or None when the prompt was over the limit."""
    outcome: Outcome | None
    min_evaluations: int = 1
    """Minimum of ``interaction.num_evaluations``."""
    max_evaluations: int | None = None
    """Maximum of ``interaction.num_evaluations``; None for no limit."""
    roles: Sequence[Role] = ()
    """Roles that it adds to the paper's, or replaces."""


async def criticise(submission: Submission) -> HistoryItem | None:
    """Criticise a solution as ``interaction.criticism`` says (see ``Criticism.criticise``)."""
    name = submission.discussion.rules.criticism
    item = await CRITICISMS[name].criticise(submission)
    check_history_item(item, criticism=name)
    return item


async def scored(submission: Submission) -> HistoryItem | None:
    """The paper's criticism: the solution is evaluated, and that evaluation is scored."""
    evaluation = await submission.evaluate()
    if evaluation is None:
        return None
    submission.score(evaluation)
    return submission.history_item(evaluation)


async def no_evaluation(submission: Submission) -> HistoryItem:
    """The paper's ablation: the solution itself is scored, and later rounds see only that."""
    submission.score(submission.solution, SCORING_ALONE)
    return submission.history_item(None)


async def no_scoring(submission: Submission) -> HistoryItem | None:
    """The paper's ablation: every evaluation ends with a judgment, and nobody scores it."""
    evaluation = await submission.evaluate(EVALUATION_WITH_JUDGMENT)
    return None if evaluation is None else submission.history_item(evaluation)


async def uncriticised(submission: Submission) -> HistoryItem:
    """No criticism; later rounds see only the solution."""
    return submission.history_item(None)


def _as_criticism(found: object) -> Criticism | None:
    if not isinstance(found, Criticism):
        return None
    check_roles(found)
    check_call(found.criticise, "submission")
    return found if iscoroutinefunction(found.criticise) else None


CRITICISMS: Registry[Criticism] = Registry(
    {
        "scored": Criticism(scored, outcome="scores"),
        "no_evaluation": Criticism(no_evaluation, outcome="scores", max_evaluations=1),
        "no_scoring": Criticism(no_scoring, outcome="judgments", min_evaluations=2),
        "self_rated": Criticism(self_rated, outcome="ratings"),
        "none": Criticism(uncriticised, outcome=None, max_evaluations=1),
        "muted": Criticism(muted, outcome="scores"),
        "exchanged": Criticism(exchanged, outcome="scores", roles=(UNTRAINED_EVALUATION,)),
    },
    group="comas.criticisms",
    wanted="a Criticism with an async function",
    adapt=_as_criticism,
)
