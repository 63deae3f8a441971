"""Consistency: judges are rewarded for telling the answers to a question apart.

Source: peer prediction over several tasks (Dasgupta and Ghosh 2013), which rewards agreement on the
same task beyond that on others; treating equal answers as the same task is our choice. Found
(November 2026, 300 steps of the quick-start, five seeds): the best single change of the paper's
reward, with 89 % of the verifier's gain (86 to below 95 by seed); evaluators do not learn to accuse
everybody, as they do under the paper's reward. ``scored_majority`` builds on it.
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
    """Reward solutions as in the paper, and their judges by how far r(s) agrees with that of equal
    answers and differs from that of other answers::

        agreement(s, s') = 1 - |r(s) - r(s')|
        r(e) = r(t) = mean agreement with solutions of the question with the same answer
                      - mean agreement with those with another answer
        r(e) = 0, r(t) = -1     if the scoring t of e has no readable score

    In the paper r(e) = 1 - r(s), so accusing everybody pays as long as scorers follow. Here, always
    saying the same gives 0, although judges that agree on something wrong are rewarded too. Only
    solutions with a score are compared. If no other solution has the same answer, or all have it,
    r(e) and r(t) are 0.

    Example: the solutions (7, r(s) = 1), (7, 1), (8, 0) of a question: judges of the first and the
    second get 1 - 0 = 1, and those of the third, which has no equal, 0.
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
        paid = worth.get((discussion.discussion_id, solution.turn_id), 0.0)
        return RewardTriple(rewards.solution, paid, paid)

    return reward_by_scoring(discussions, triple_of)


def weighed_solutions(discussions: Sequence[Discussion]) -> list[tuple[TurnKey, Turn, float]]:
    """Return (key, solution, r(s)) of every solution with a readable score; r(s) is the mean of the
    paper's over these scores."""
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
"""(key, answer, reward) of a solution."""


def _worths(solutions: Sequence[Solved]) -> dict[TurnKey, float]:
    """Return the reward of the judges of each solution of a question."""
    alike: dict[TurnKey, list[float]] = {key: [] for key, _, _ in solutions}
    apart: dict[TurnKey, list[float]] = {key: [] for key, _, _ in solutions}
    for (key, answer, reward), (_, other, paid) in permutations(solutions, 2):
        (alike if answer == other else apart)[key].append(1 - abs(reward - paid))
    return {
        key: fmean(alike[key]) - fmean(apart[key]) if alike[key] and apart[key] else 0.0
        for key in alike
    }


consistency = RewardScheme(consistency_reward, reads="scores")
