"""What happens to a solution once it is given, under every schedule: who evaluates it, who decides.

A new criticism is one function and one line in ``CRITICISMS``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from comas.config.schema import Interaction
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
    """Who evaluates a solution, and who scores that evaluation."""

    evaluator: int
    scorer: int


@dataclass(frozen=True)
class Submission:
    """A solution that is to be criticised for the ``index``-th time, with ``history`` in sight."""

    discussion: OpenDiscussion
    solution: Turn
    critics: Critics
    index: int
    history: Sequence[HistoryItem]
    scorings: asyncio.TaskGroup

    async def evaluate(self, template: Template = EVALUATION) -> Turn | None:
        """The evaluation; None when it could not be asked for."""
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

    def score(self, weighed: Turn, template: Template = SCORING, *, index: int = 0) -> None:
        """Have an evaluation, or the solution, scored; nothing in the discussion waits for it, as
        a scoring never enters the history."""
        self.scorings.create_task(
            self.discussion.ask(
                "scoring", self.critics.scorer, template, parent=weighed, index=index
            )
        )

    def remembered(self, evaluation: Turn | None) -> HistoryItem:
        """What later rounds may see."""
        return HistoryItem(self.solution.text, None if evaluation is None else evaluation.text)


Outcome = Literal["scores", "judgments", "ratings"]
"""What a criticism says of a solution, for a reward scheme to read."""


class Criticism(NamedTuple):
    """What is done with a solution, and what comes of it."""

    criticise: Callable[[Submission], Awaitable[HistoryItem | None]]
    """Returns what later rounds may see; None: it could not be asked for."""
    outcome: Outcome | None
    min_evaluations: int = 1
    """Smallest ``interaction.num_evaluations`` that makes sense."""
    max_evaluations: int | None = None
    """Greatest one; None: any."""


async def criticise(
    discussion: OpenDiscussion,
    solution: Turn,
    critics: Critics,
    *,
    index: int,
    history: Sequence[HistoryItem],
    scorings: asyncio.TaskGroup,
) -> HistoryItem | None:
    """Have ``solution`` criticised as ``interaction.criticism`` says.

    Scorings run in ``scorings``. Returns what later rounds may see, or None when that could not
    be asked for.
    """
    submission = Submission(discussion, solution, critics, index, history, scorings)
    rules: Interaction = discussion.rules
    return await CRITICISMS[rules.criticism].criticise(submission)


async def scored(submission: Submission) -> HistoryItem | None:
    """The paper's: the solution is evaluated, and the evaluation scored."""
    evaluation = await submission.evaluate()
    if evaluation is None:
        return None
    submission.score(evaluation)
    return submission.remembered(evaluation)


async def no_evaluation(submission: Submission) -> HistoryItem:
    """The paper's ablation: the solution itself is scored, and later rounds see it alone."""
    submission.score(submission.solution, SCORING_ALONE, index=submission.index)
    return submission.remembered(None)


async def no_scoring(submission: Submission) -> HistoryItem | None:
    """The paper's ablation: every evaluation ends with a judgment, and nobody scores it."""
    evaluation = await submission.evaluate(EVALUATION_WITH_JUDGMENT)
    return None if evaluation is None else submission.remembered(evaluation)


async def self_rated(submission: Submission) -> HistoryItem | None:
    """Self-rewarding models: who gave the solution rates it, and nobody else is asked."""
    own = submission.solution.agent_index
    rating = await replace(submission, critics=Critics(own, own)).evaluate(RATING)
    return None if rating is None else submission.remembered(rating)


async def none(submission: Submission) -> HistoryItem:
    """Nobody criticises; later rounds see the solution alone."""
    return submission.remembered(None)


async def muted(submission: Submission) -> HistoryItem:
    """A control: nobody is asked for an evaluation, and an approval is scored."""
    approval = APPROVALS[submission.discussion.question.domain]
    given = submission.give(approval, index=submission.index)
    submission.score(given)
    return submission.remembered(given)


async def exchanged(submission: Submission) -> HistoryItem | None:
    """A control: what is scored is the evaluation at the same place of the partner discussion.

    The own evaluation is asked for all the same, for the discussion whose partner this one is; it
    is not scored, so it is not trained. Where there is no partner, or it could not ask for its
    evaluation, the solution is not scored either.
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
    return submission.remembered(given)


CRITICISMS: dict[str, Criticism] = {
    "scored": Criticism(scored, outcome="scores"),
    "no_evaluation": Criticism(no_evaluation, outcome="scores", max_evaluations=1),
    "no_scoring": Criticism(no_scoring, outcome="judgments", min_evaluations=2),
    "self_rated": Criticism(self_rated, outcome="ratings"),
    "none": Criticism(none, outcome=None, max_evaluations=1),
    "muted": Criticism(muted, outcome="scores"),
    "exchanged": Criticism(exchanged, outcome="scores"),
}
