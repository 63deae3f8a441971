"""Criticisms for comparison with the paper's: that of a baseline, and controls."""

from collections import defaultdict
from dataclasses import replace

from comas.interaction.discussion import Critics, OpenDiscussion, Submission
from comas.interaction.prompts import APPROVALS, RATING, HistoryItem
from comas.types import Role, Turn

UNTRAINED_EVALUATION = Role("evaluation", "judges", is_trained=False)


async def self_rated(submission: Submission) -> HistoryItem | None:
    """Self-rewarding models: only the solver itself rates the solution."""
    solver = submission.solution.agent_index
    rating = await replace(submission, critics=Critics(solver, solver)).evaluate(RATING)
    return None if rating is None else submission.history_item(rating)


async def muted(submission: Submission) -> HistoryItem:
    """A control: a fixed approval takes the place of the evaluation, and is scored."""
    approval = APPROVALS[submission.discussion.question.domain]
    given = _give(submission, approval, index=submission.index)
    submission.score(given)
    return submission.history_item(given)


async def exchanged(submission: Submission) -> HistoryItem | None:
    """A control: the evaluation of another discussion, the partner, is scored in place of one's
    own.

    It is the evaluation at the same place of the partner discussion (``partner_of``). The
    evaluation that an agent writes here is scored in another discussion, and not trained. If the
    partner has no such evaluation, nothing is scored.
    """
    await submission.evaluate()
    # No deadlock: an evaluation of a round depends only on earlier rounds.
    discussion, place = submission.discussion, submission.index
    partner = partner_of(discussion)
    turn_id = f"{submission.solution.turn_id}.e{place}"
    heard = None if partner is None else await partner.hear(turn_id)
    if heard is None:
        return None
    given = _give(submission, heard.text, index=discussion.rules.num_evaluations + place)
    submission.score(given)
    return submission.history_item(given)


def _give(submission: Submission, text: str, *, index: int) -> Turn:
    """Add a given evaluation in place of the evaluator's."""
    agent, parent = submission.critics.evaluator, submission.solution
    return submission.discussion.give("evaluation", agent, text, parent=parent, index=index)


def partner_of(discussion: OpenDiscussion) -> OpenDiscussion | None:
    """Return the same copy of the next question of the domain in the batch; None if there is none.

    Example: with sums a, b of two copies each and one program p, the partners of a0, a1, b0, b1 are
    b0, b1, a0, a1, and p has none.
    """
    copies: defaultdict[str, list[OpenDiscussion]] = defaultdict(list)
    for other in discussion.batch:
        if other.question.domain == discussion.question.domain:
            copies[other.question.question_id].append(other)
    names = list(copies)
    name = discussion.question.question_id
    following = copies[names[(names.index(name) + 1) % len(names)]]
    partner = following[copies[name].index(discussion) % len(following)]
    return None if partner is discussion else partner
