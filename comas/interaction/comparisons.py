"""What the paper's schedules and criticism are compared with: those of baselines, and controls."""

from collections import defaultdict
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from random import Random

from comas.config.schema import Interaction
from comas.interaction.discussion import Critics, OpenDiscussion, Submission
from comas.interaction.prompts import APPROVALS, RATING, SOLUTION, HistoryItem
from comas.types import Role, Turn
from comas.utils.concurrency import run_all

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
    """A control: the evaluation of another discussion, the partner, is scored instead.

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


def debate(
    discussions: Sequence[OpenDiscussion], *, num_agents: int, rules: Interaction, rng: Random
) -> list[Coroutine[None, None, None]]:
    """The schedule of the baseline MAPoRL: in each round every agent answers, without criticism.
    From the second round on, it sees its own previous answer and those of up to kappa others, drawn
    for every agent and round."""
    return [_argue(discussion, num_agents=num_agents) for discussion in discussions]


def draw_seen(rng: Random, agent: int, *, num_agents: int, num_others: int) -> list[int]:
    """Draw the agents whose answers ``agent`` sees: some others, and last itself, never dropped."""
    others = [other for other in range(num_agents) if other != agent]
    return [*sorted(rng.sample(others, min(num_others, len(others)))), agent]


async def _argue(discussion: OpenDiscussion, *, num_agents: int) -> None:
    answers: list[Turn | None] = [None] * num_agents

    def ask(agent: int, round_index: int) -> Coroutine[None, None, Turn | None]:
        seen = draw_seen(
            discussion.rng, agent, num_agents=num_agents, num_others=discussion.rules.horizon
        )
        heard = [(other, answers[other]) for other in seen]
        history = [HistoryItem(a.text, None, is_own=o == agent) for o, a in heard if a is not None]
        return discussion.ask(
            "solution", agent, SOLUTION, round_index=round_index, index=agent, history=history
        )

    for round_index in range(discussion.rules.num_rounds):
        answers = await run_all([ask(agent, round_index) for agent in range(num_agents)])
