"""Consistency: who judges is paid for what tells the answers to a question apart."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from statistics import fmean

from comas.reward_formulation.interaction_reward import interaction_reward, parse_score
from comas.types import Discussion, RewardedDiscussion, Rewards, Turn, TurnKey
from comas.verification.latex import compared_as


def consistency_reward(discussions: Sequence[Discussion]) -> Rewards:
    """The paper's rewards of solutions. Those who evaluated and scored a solution s are paid for
    whether its r(s) is that of equal answers, and not that of others::

        agreement(s, s') = 1 - |r(s) - r(s')|
        r(e) = r(t) = mean agreement with solutions of the question with the same answer
                      - mean agreement with those with another answer
        r(t) = -1     when it holds no score

    In the paper an evaluation is paid 1 - r(s), so that accusing everybody pays as long as scorers
    follow. Here who always says the same gets 0, and nobody sees what is right: judges that agree
    on what is wrong are paid as well. Where no other solution has the same answer, or none has
    another, r(e) and r(t) are 0.

    Source: peer prediction over several tasks (Dasgupta and Ghosh 2013), which pays agreement on
    the same task beyond that on others; that equal answers are the same task is our choice.

    Example: to one question (7, r(s) = 1), (7, 1), (8, 0): the judges of the first get
    1 - 0 = 1, as those of the second, and those of the third, who has no equal, 0.
    """
    base = interaction_reward(discussions)
    by_question: dict[str, list[Solved]] = {}
    for item in base.discussions:
        of_question = by_question.setdefault(item.discussion.question.question_id, [])
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True):
            if turn.role == "solution" and reward is not None:
                key = (item.discussion.discussion_id, turn.turn_id)
                of_question.append((key, compared_as(turn.text), reward))
    worth: dict[TurnKey, float] = {}
    for of_question in by_question.values():
        worth |= _worths(of_question)
    return Rewards([_pay(item, worth) for item in base.discussions], base.metrics)


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


def _pay(item: RewardedDiscussion, worth: Mapping[TurnKey, float]) -> RewardedDiscussion:
    discussion = item.discussion
    turns = {turn.turn_id: turn for turn in discussion.turns}

    def paid(turn: Turn, reward: float | None) -> float | None:
        parent = turns.get(turn.parent_turn_id or "")
        is_invalid = turn.role == "scoring" and parse_score(turn.text) is None
        if parent is None or reward is None or is_invalid:
            return reward
        solution_id = parent.parent_turn_id or parent.turn_id
        return worth.get((discussion.discussion_id, solution_id), 0.0)

    pairs = zip(discussion.turns, item.rewards, strict=True)
    return RewardedDiscussion(discussion, tuple(paid(turn, reward) for turn, reward in pairs))
