"""Scored majority: a vote of a question's solutions, weighted by their scores.

Source: arXiv 2206.02336, where a vote weighted by a verifier's scores chooses an answer; here it
makes a reward, and the society's own judges score. Found (November 2026, 300 steps of the
quick-start): greedy accuracy keeps up with a verifier's reward for five of six new seeds, and for
three of five in math and science alone. A plain vote needs models without common mistakes, as those
of the quick-start are; this one did not (``results/votes.md``).
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
    r"""Reward as ``consistency`` does, but in math reward a solution s with answer a(s) for giving
    the elected answer, among all solutions s' of all copies of the question::

        elected = argmax over a of the sum of r(s') where a(s') = a
        r'(s)   = 1 if a(s) = elected, else 0

    A mistake loses the vote if few solutions make it, or if judges see it; a habit that agents
    share and judges miss is rewarded. The first given wins a tie. A solution without a boxed answer
    gets 0. If no answer has a score above 0, and in coding and science, whose answers cannot be
    counted, solutions keep the paper's r(s).

    ``weigh`` replaces the scores as weights.

    Example: 7 with r(s) = 1, 7 with 0.5, 8 with 1: 7 is elected, and they get 1, 1, 0.
    """
    base = consistency_reward(discussions)
    scores = {
        (item.discussion.discussion_id, turn.turn_id): reward
        for item in base.discussions
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True)
    }
    elected = hold_votes(discussions, weigh or (lambda d, s: scores[d.discussion_id, s.turn_id]))
    rewarded = [
        _pay(item, elected.get(item.discussion.question.question_id)) for item in base.discussions
    ]
    return Rewards(rewarded, base.metrics)


def _pay(item: RewardedDiscussion, elected: str | None) -> RewardedDiscussion:
    if elected is None:
        return item
    solutions = item.discussion.solutions()
    rewards = (
        float(spelled_answer(turn.text) == elected)
        if turn in solutions and reward is not None
        else reward
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True)
    )
    return RewardedDiscussion(item.discussion, tuple(rewards))


scored_majority = RewardScheme(scored_majority_reward, reads="scores")
plain_majority = RewardScheme(partial(scored_majority_reward, weigh=one_vote), reads="scores")
"""Every solution has one vote, as a control."""
