"""Scored majority: a vote of a question's solutions, each of which counts what it is scored.

Source: a vote weighed by a verifier's scores (arXiv 2206.02336), which chooses an answer there and
makes a reward here; the judges are the society's own. Found (November 2026, 300 steps of the
quick-start): with five of six fresh seeds it keeps up with a verifier's reward in greedy accuracy,
over math and science alone with three of five; that the two models share no habit of mistakes,
which a plain vote needs and this one did not, was planted (``results/votes.md``).
"""

from collections.abc import Sequence
from functools import partial

from comas.ideas.consistency import consistency_reward
from comas.reward_formulation import RewardScheme
from comas.reward_formulation.majority_reward import Weigh, hold_votes, one_vote
from comas.types import Discussion, RewardedDiscussion, Rewards
from comas.verification.latex import spelled_answer


def scored_majority_reward(
    discussions: Sequence[Discussion], *, weigh: Weigh | None = None
) -> Rewards:
    r"""The rewards of ``consistency``, but in math a solution s with answer a(s) is paid for giving
    the answer which the judges' scores r(s') elect, among all solutions of all copies of the
    question::

        elected = argmax over a of the sum of r(s') where a(s') = a
        r'(s)   = 1 if a(s) = elected, else 0

    A mistake that no judge sees loses the vote when few models make it; one that many make loses
    it when judges see it. What both miss is paid, such as a habit that agents of one model share.
    The first given wins a tie. A solution without a boxed answer gets 0, and one without a score is
    paid by the votes of the others. Where no answer was scored above 0, and for coding and science,
    whose answers cannot be counted, solutions keep the paper's r(s).

    ``majority/share`` is the mean share of solutions that give the elected answer. With ``weigh``
    a vote counts that instead of its score.

    Example: 7 with r(s) = 1, 7 with 0.5, 8 with 1: elected is 7, and they get 1, 1, 0.
    """
    base = consistency_reward(discussions)
    scores = {
        (item.discussion.discussion_id, turn.turn_id): reward
        for item in base.discussions
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True)
    }
    elected, metrics = hold_votes(
        discussions, weigh or (lambda d, s: scores[d.discussion_id, s.turn_id])
    )
    rewarded = [
        _pay(item, elected.get(item.discussion.question.question_id)) for item in base.discussions
    ]
    return Rewards(rewarded, base.metrics | metrics)


def _pay(item: RewardedDiscussion, elected: str | None) -> RewardedDiscussion:
    if elected is None:
        return item
    return RewardedDiscussion(
        item.discussion,
        tuple(
            float(spelled_answer(turn.text) == elected)
            if turn in item.discussion.solutions() and reward is not None
            else reward
            for turn, reward in zip(item.discussion.turns, item.rewards, strict=True)
        ),
    )


scored_majority = RewardScheme(scored_majority_reward, reads="scores")
plain_majority = RewardScheme(partial(scored_majority_reward, weigh=one_vote), reads="scores")
"""Every solution has one vote: what scores add to it is the difference."""
