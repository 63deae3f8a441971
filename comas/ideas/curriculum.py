"""Curriculum: questions on which the society's solutions disagree are asked more often.

Source: sampling for learnability (arXiv 2502.12272), which prefers questions that are solved
sometimes, but not always; here agreement replaces success, so questions that all get wrong alike
are also asked less. Not studied yet; it only ran with scripted agents.
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
"""Weight of a question on which all or none agreed; the society may change its mind."""


def agreement(items: Sequence[RewardedDiscussion]) -> float | None:
    """Return the share of pairs of solutions to a question with the same answer; None in coding,
    where answers cannot be compared, and for fewer than two solutions.

    Example: 7, 7 and 8 give 1/3.
    """
    if items[0].discussion.question.domain == "coding":
        return None
    solutions = [turn for item in items for turn in item.discussion.solutions()]
    counts = Counter(compared_as(turn.text) for turn in solutions)
    num_pairs = len(solutions) * (len(solutions) - 1)
    return sum(n * (n - 1) for n in counts.values()) / num_pairs if num_pairs else None


def weight(agreed: float) -> float:
    """Return a question's weight: 1 if half of the pairs agreed, down to ``LEAST_WEIGHT`` if all or
    none did."""
    return LEAST_WEIGHT + (1 - LEAST_WEIGHT) * 4 * agreed * (1 - agreed)


def choose(
    questions: Sequence[Question], agreed: Mapping[str, float], num: int, rng: Random
) -> list[Question]:
    """Draw ``num`` different questions by weight (1 if not discussed yet): those with the largest
    u^(1 / weight), with u uniform in [0, 1) (Efraimidis and Spirakis 2006)."""
    keys = [rng.random() ** (1 / weight(agreed.get(q.question_id, 0.5))) for q in questions]
    return [questions[i] for i in nlargest(num, range(len(questions)), key=keys.__getitem__)]


curriculum = RewardScheme(
    interaction_reward, reads="scores", curriculum=Curriculum(note=agreement, choose=choose)
)
