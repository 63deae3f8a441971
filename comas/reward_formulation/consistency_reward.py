"""Consistency: who judges is paid for what tells the answers to a question apart."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import permutations
from statistics import fmean

from comas.reward_formulation.interaction_reward import (
    RewardTriple,
    reward_by_scoring,
    rewards_of_score,
    weighed_solutions,
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

    Source: peer prediction over several tasks (Dasgupta and Ghosh 2013), which pays agreement on
    the same task beyond that on others; that equal answers are the same task is our choice.

    Example: to one question (7, r(s) = 1), (7, 1), (8, 0): the judges of the first get
    1 - 0 = 1, as those of the second, and those of the third, who has no equal, 0.
    """
    question_of = {d.discussion_id: d.question.question_id for d in discussions}
    by_question: defaultdict[str, list[Solved]] = defaultdict(list)
    for key, turn, reward in weighed_solutions(discussions):
        by_question[question_of[key[0]]].append((key, compared_as(turn.text), reward))
    worth: dict[TurnKey, float] = {}
    for of_question in by_question.values():
        worth |= _worths(of_question)

    def triple_of(discussion: Discussion, solution: Turn, score: int | None) -> RewardTriple:
        of_paper = rewards_of_score(score)
        if score is None:
            return of_paper
        paid = worth[discussion.discussion_id, solution.turn_id]
        return RewardTriple(of_paper.solution, paid, paid)

    return reward_by_scoring(discussions, triple_of)


Solved = tuple[TurnKey, str, float]
"""A solution, its answer and its reward."""


def _worths(solutions: Sequence[Solved]) -> dict[TurnKey, float]:
    """What the judges of each solution of a question get."""
    alike: dict[TurnKey, list[float]] = {key: [] for key, _, _ in solutions}
    apart: dict[TurnKey, list[float]] = {key: [] for key, _, _ in solutions}
    for (key, answer, reward), (_, other, paid) in permutations(solutions, 2):
        (alike if answer == other else apart)[key].append(1 - abs(reward - paid))
    return {
        key: fmean(alike[key]) - fmean(apart[key]) if alike[key] and apart[key] else 0.0
        for key in alike
    }
