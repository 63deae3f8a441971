"""Consistency: who judges is paid for what tells the answers to a question apart.

Source: peer prediction over several tasks (Dasgupta and Ghosh 2013), which pays agreement on the
same task beyond that on others; that equal answers are the same task is our choice. Found (November
2026, 300 steps of the quick-start, five seeds): the best of the single changes of the paper's
reward, at 89 % of the verifier's gain (least: 86), and with no seed at 95; evaluators do not learn
to accuse everybody, as they do under the paper's reward. The vote of ``scored_majority`` builds on
it.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import permutations
from statistics import fmean

from comas.reward_formulation import RewardScheme
from comas.reward_formulation.interaction_reward import (
    RewardTriple,
    reward_by_scoring,
    rewards_of_score,
)
from comas.types import Discussion, Rewards, Turn, TurnKey
from comas.verification.latex import compared_as


def consistency_reward(discussions: Sequence[Discussion]) -> Rewards:
    """The paper's rewards of solutions. Those who evaluated and scored a solution s are paid for
    whether its r(s) is that of equal answers, and not that of others::

        agreement(s, s') = 1 - |r(s) - r(s')|
        r(e) = r(t) = mean agreement with solutions of the question with the same answer
                      - mean agreement with those with another answer
        r(e) = 0, r(t) = -1     when the scoring t of e holds no score

    In the paper an evaluation is paid 1 - r(s), so that accusing everybody pays as long as scorers
    follow. Here who always says the same gets 0, and nobody sees what is right: judges that agree
    on what is wrong are paid as well. Only solutions that hold a score are compared. Where no other
    has the same answer, or none has another, r(e) and r(t) are 0.

    Example: to one question (7, r(s) = 1), (7, 1), (8, 0): the judges of the first get
    1 - 0 = 1, as those of the second, and those of the third, who has no equal, 0.
    """
    question_of = {d.discussion_id: d.question.question_id for d in discussions}
    by_question: defaultdict[str, list[Solved]] = defaultdict(list)
    for key, turn, reward in weighed_solutions(discussions):
        by_question[question_of[key[0]]].append((key, compared_as(turn.text), reward))
    worth: dict[TurnKey, float] = {}
    for solved in by_question.values():
        worth |= _worths(solved)

    def triple_of(discussion: Discussion, solution: Turn, score: int | None) -> RewardTriple:
        rewards = rewards_of_score(score)
        if score is None:
            return rewards
        paid = worth[discussion.discussion_id, solution.turn_id]
        return RewardTriple(rewards.solution, paid, paid)

    return reward_by_scoring(discussions, triple_of)


def weighed_solutions(discussions: Sequence[Discussion]) -> list[tuple[TurnKey, Turn, float]]:
    """Return every solution that holds a score, by its key, with the mean of the paper's r(s) over
    its scorings that hold one: what solutions may be compared by."""
    scored = reward_by_scoring(
        discussions, lambda _, __, score: None if score is None else rewards_of_score(score)
    )
    return [
        ((item.discussion.discussion_id, turn.turn_id), turn, reward)
        for item in scored.discussions
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True)
        if turn in item.discussion.solutions() and reward is not None
    ]


Solved = tuple[TurnKey, str, float]
"""A solution, its answer and its reward."""


def _worths(solutions: Sequence[Solved]) -> dict[TurnKey, float]:
    """Return what the judges of each solution of a question get."""
    alike: dict[TurnKey, list[float]] = {key: [] for key, _, _ in solutions}
    apart: dict[TurnKey, list[float]] = {key: [] for key, _, _ in solutions}
    for (key, answer, reward), (_, other, paid) in permutations(solutions, 2):
        (alike if answer == other else apart)[key].append(1 - abs(reward - paid))
    return {
        key: fmean(alike[key]) - fmean(apart[key]) if alike[key] and apart[key] else 0.0
        for key in alike
    }


consistency = RewardScheme(consistency_reward, reads="scores")
