"""Curriculum: questions about which the society's own solutions disagree are asked more often.

Source: sampling for learnability (arXiv 2502.12272), which prefers questions that a verifier sees
solved sometimes, but not always; agreement takes the place of success here. Found: nothing yet, it
ran with scripted agents alone. What all solve is asked less, and what all get wrong alike as well:
nobody sees what is right.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nlargest
from random import Random

from comas.reward_formulation import RewardScheme
from comas.reward_formulation.curriculum import Curriculum
from comas.reward_formulation.interaction_reward import interaction_reward
from comas.types import Question, RewardedDiscussion
from comas.verification.latex import compared_as

LEAST_WEIGHT = 0.05
"""Of a question on which all agreed, or none: the society changes, so it is asked again."""


def agreement(items: Sequence[RewardedDiscussion]) -> float | None:
    """Return the share of the pairs of solutions, in discussions of one question, that give the
    same answer; None in coding, where programs cannot be compared, and of less than two.

    Example: 7, 7 and 8: 1/3.
    """
    if items[0].discussion.question.domain == "coding":
        return None
    solutions = [turn for item in items for turn in item.discussion.solutions()]
    counts = Counter(compared_as(turn.text) for turn in solutions)
    num_pairs = len(solutions) * (len(solutions) - 1)
    return sum(n * (n - 1) for n in counts.values()) / num_pairs if num_pairs else None


def weight(agreed: float) -> float:
    """Return how readily a question is asked: 1 where half of the pairs agreed, or where it is not
    known, down to ``LEAST_WEIGHT`` where all did, or none."""
    return LEAST_WEIGHT + (1 - LEAST_WEIGHT) * 4 * agreed * (1 - agreed)


def choose(
    questions: Sequence[Question], agreed: Mapping[str, float], num: int, rng: Random
) -> list[Question]:
    """Draw ``num`` different questions, each next one with a probability in proportion to its
    weight among those that are left: the largest u^(1 / weight), with u uniform in [0, 1)
    (Efraimidis and Spirakis 2006)."""
    keys = [rng.random() ** (1 / weight(agreed.get(q.question_id, 0.5))) for q in questions]
    return [questions[i] for i in nlargest(num, range(len(questions)), key=keys.__getitem__)]


curriculum = RewardScheme(
    interaction_reward, reads="scores", curriculum=Curriculum(note=agreement, choose=choose)
)
