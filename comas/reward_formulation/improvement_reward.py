"""A criticism is paid by what it changes: the solver revises, the scorer weighs both versions."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from comas.interaction.asking import Ask, Formulating
from comas.interaction.prompts import SCORING, SOLUTION, HistoryItem
from comas.reward_formulation.interaction_reward import interaction_reward, parse_score
from comas.types import Discussion, RewardedDiscussion, Rewards, Turn, TurnKey


def improvement_reward(discussions: Sequence[Discussion]) -> Formulating:
    """The paper's rewards of solutions and scorings, and for an evaluation e of a solution s::

        r(e) = max(0, V(s', e) - V(s, e))      V = (score - 1) / 2

    s' is what the solver of s says when it is shown s and e as a second round would show them.
    V(s, e) is from the scoring in the discussion, V(s', e) by the same scorer, who weighs e against
    s' instead (of several scorers the mean). So an evaluation is paid if it is accepted, and the
    revision no longer deserves it. Without one of the scores it gets 0; where the prompts were too
    long, None. Metrics: the mean of V(s', e) - V(s, e), and the share of them above 0.

    Source: the diagnostic reward of CoNL (arXiv 2601.21464), the sum of max(0, V_final - V_init)
    over those whom an agent criticised. Our choices: V is the score (there a Bradley-Terry strength
    from rankings, the first of which are blind to the criticism); revisions are not trained (there
    as solutions are); r(e) counts as much as the others (there twice).

    Example: s is scored 1, s' 3: r(s) = 0 and r(e) = 1, as in CoMAS. If s' is scored 1, r(e) = 0.
    """
    scored = [found for discussion in discussions for found in _scored(discussion)]
    revisions = yield [
        Ask(d, "solution", s.agent_index, SOLUTION, e, history=[HistoryItem(s.text, e.text)])
        for d, s, e in scored
    ]
    weighed = [
        ((d.discussion_id, e.turn_id), before, Ask(d, "scoring", before.agent_index, SCORING, s))
        for (d, _, e), s in zip(scored, revisions, strict=True)
        if s is not None
        for before in d.children(e, "scoring")
    ]
    scorings = yield [ask for *_, ask in weighed]
    changes: defaultdict[TurnKey, list[float]] = defaultdict(list)
    for (key, before, _), after in zip(weighed, scorings, strict=True):
        if after is not None:
            changes[key] += _change(before, after)
    known = [fmean(of_evaluation) for of_evaluation in changes.values() if of_evaluation]
    metrics = {
        "improvement/change": fmean(known) if known else None,
        "improvement/paid_rate": fmean(change > 0 for change in known) if known else None,
    }
    paid = interaction_reward(discussions)
    return Rewards([_paid(item, changes) for item in paid.discussions], paid.metrics | metrics)


def _scored(discussion: Discussion) -> list[tuple[Discussion, Turn, Turn]]:
    """Every solution with an evaluation that somebody gave and somebody scored."""
    return [
        (discussion, solution, evaluation)
        for solution in discussion.children(None, "solution")
        for evaluation in discussion.children(solution, "evaluation")
        if not evaluation.is_given and discussion.children(evaluation, "scoring")
    ]


def _change(before: Turn, after: Turn) -> list[float]:
    """From the one scoring to the other; nothing where one holds no score."""
    first, second = parse_score(before.text), parse_score(after.text)
    return [] if first is None or second is None else [(second - first) / 2]


def _paid(item: RewardedDiscussion, changes: Mapping[TurnKey, list[float]]) -> RewardedDiscussion:
    rewards: list[float | None] = []
    for turn, reward in zip(item.discussion.turns, item.rewards, strict=True):
        of_turn = changes.get((item.discussion.discussion_id, turn.turn_id))
        of_change = None if of_turn is None else max(0.0, fmean(of_turn or [0.0]))
        rewards.append(of_change if turn.role == "evaluation" else reward)
    return RewardedDiscussion(item.discussion, tuple(rewards))
