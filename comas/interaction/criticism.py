"""Criticism: what follows a solution, under every schedule: who evaluates it, and who scores.

A new criticism is one function and one line in ``CRITICISMS``.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import Literal, NamedTuple

from comas.config.plugins import Registry, check_call
from comas.interaction.discussion import OpenDiscussion
from comas.interaction.prompts import (
    APPROVALS,
    EVALUATION,
    EVALUATION_WITH_JUDGMENT,
    RATING,
    SCORING,
    SCORING_ALONE,
    HistoryItem,
    Template,
)
from comas.types import Turn


class Critics(NamedTuple):
    """The agents that evaluate a solution and score that evaluation."""

    evaluator: int
    scorer: int


@dataclass(frozen=True)
class Submission:
    """A solution that is to be criticised for the ``index``-th time, with what its evaluator is
    shown of earlier ones."""

    discussion: OpenDiscussion
    solution: Turn
    critics: Critics
    index: int
    history: Sequence[HistoryItem]

    async def evaluate(self, template: Template = EVALUATION) -> Turn | None:
        """Ask for an evaluation of the solution; None when the prompt is over the limit."""
        return await self.discussion.ask(
            "evaluation",
            self.critics.evaluator,
            template,
            parent=self.solution,
            index=self.index,
            history=self.history,
        )

    def give(self, evaluation: str, *, index: int) -> Turn:
        """Put a text in the place of the evaluator's."""
        evaluator = self.critics.evaluator
        return self.discussion.give(
            "evaluation", evaluator, evaluation, parent=self.solution, index=index
        )

    def score(self, weighed: Turn, template: Template = SCORING) -> None:
        """Have an evaluation, or the solution itself, scored; nothing waits for it, as a scoring
        never enters the history."""
        assert self.discussion.tasks is not None, "a discussion is held by schedules.hold"
        asking = self.discussion.ask("scoring", self.critics.scorer, template, parent=weighed)
        self.discussion.tasks.create_task(asking)

    def history_item(self, evaluation: Turn | None) -> HistoryItem:
        """Render what later rounds may see."""
        return HistoryItem(self.solution.text, None if evaluation is None else evaluation.text)


Outcome = Literal["scores", "judgments", "ratings"]
"""What a criticism leaves for a reward scheme to read: scores of evaluations, judgments within
evaluations where nobody scores, or an agent's ratings of its own solutions."""


class Criticism(NamedTuple):
    """A way to criticise a solution, and what comes of it."""

    criticise: Callable[[Submission], Awaitable[HistoryItem | None]]
    """Returns what later rounds may see; None: it could not be asked for."""
    outcome: Outcome | None
    min_evaluations: int = 1
    """Smallest ``interaction.num_evaluations`` that makes sense."""
    max_evaluations: int | None = None
    """Greatest one; None: any."""


async def criticise(submission: Submission) -> HistoryItem | None:
    """Have a solution criticised as ``interaction.criticism`` says.

    Returns what later rounds may see, or None when that could not be asked for.
    """
    rules = submission.discussion.rules
    made: object = CRITICISMS[rules.criticism].criticise(submission)
    if not isawaitable(made):
        raise ValueError(
            f"interaction.criticism={rules.criticism}: it returned {type(made).__name__}, which "
            "cannot be awaited; begin it with async def"
        )
    return await made


async def scored(submission: Submission) -> HistoryItem | None:
    """The paper's: the solution is evaluated, and the evaluation scored."""
    evaluation = await submission.evaluate()
    if evaluation is None:
        return None
    submission.score(evaluation)
    return submission.history_item(evaluation)


async def no_evaluation(submission: Submission) -> HistoryItem:
    """The paper's ablation: the solution itself is scored, and later rounds see it alone."""
    submission.score(submission.solution, SCORING_ALONE)
    return submission.history_item(None)


async def no_scoring(submission: Submission) -> HistoryItem | None:
    """The paper's ablation: every evaluation ends with a judgment, and nobody scores it."""
    evaluation = await submission.evaluate(EVALUATION_WITH_JUDGMENT)
    return None if evaluation is None else submission.history_item(evaluation)


async def self_rated(submission: Submission) -> HistoryItem | None:
    """Self-rewarding models: who gave the solution rates it, and nobody else is asked."""
    solver = submission.solution.agent_index
    rating = await replace(submission, critics=Critics(solver, solver)).evaluate(RATING)
    return None if rating is None else submission.history_item(rating)


async def uncriticised(submission: Submission) -> HistoryItem:
    """Nobody is asked anything; later rounds see the solution alone."""
    return submission.history_item(None)


async def muted(submission: Submission) -> HistoryItem:
    """A control: nobody is asked for an evaluation, and an approval is scored."""
    approval = APPROVALS[submission.discussion.question.domain]
    given = submission.give(approval, index=submission.index)
    submission.score(given)
    return submission.history_item(given)


async def exchanged(submission: Submission) -> HistoryItem | None:
    """A control: what is scored is the evaluation at the same place of the partner discussion.

    The own one is asked for all the same, for the discussion whose partner this one is, and neither
    scored nor trained. Where there is nothing to exchange, nothing is scored.
    """
    await submission.evaluate()
    # No two discussions wait for each other: what is heard of a round needs earlier rounds only.
    discussion, place = submission.discussion, submission.index
    turn_id = f"{submission.solution.turn_id}.e{place}"
    heard = None if discussion.partner is None else await discussion.partner.hear(turn_id)
    if heard is None:
        return None
    given = submission.give(heard.text, index=discussion.rules.num_evaluations + place)
    submission.score(given)
    return submission.history_item(given)


def _as_criticism(found: object) -> Criticism | None:
    if not isinstance(found, Criticism):
        return None
    check_call(found.criticise, "submission")
    return found


CRITICISMS: Registry[Criticism] = Registry(
    {
        "scored": Criticism(scored, outcome="scores"),
        "no_evaluation": Criticism(no_evaluation, outcome="scores", max_evaluations=1),
        "no_scoring": Criticism(no_scoring, outcome="judgments", min_evaluations=2),
        "self_rated": Criticism(self_rated, outcome="ratings"),
        "none": Criticism(uncriticised, outcome=None, max_evaluations=1),
        "muted": Criticism(muted, outcome="scores"),
        "exchanged": Criticism(exchanged, outcome="scores"),
    },
    group="comas.criticisms",
    wanted="a Criticism",
    adapt=_as_criticism,
)
