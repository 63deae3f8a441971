"""Proposals are paid for being at the edge of what the society can do."""

from collections.abc import Sequence
from statistics import fmean

from comas.interaction.discussion import is_taken_up
from comas.reward_formulation.interaction_reward import interaction_reward
from comas.types import Discussion, RewardedDiscussion, Rewards


def frontier_reward(discussions: Sequence[Discussion]) -> Rewards:
    """The paper's rewards, and for the proposal p of a question, where m is the mean of r(s) over
    the solutions that it got::

        r(p) = 4 m (1 - m)      1 where half of them are approved, 0 where all are, or none
        r(p) = 0                when it repeats the question that it was to be like, or is empty

    Where nobody scored, r(p) is None. ``proposal/taken_up_rate`` is the share of proposals that
    were discussed, ``proposal/difficulty`` the mean of 1 - m over those.

    Source: SPICE (arXiv 2510.24684) pays for the variance of what solvers achieve, which is m (1 -
    m) of rewards that are 0 or 1, and Multi-Agent Evolve (arXiv 2510.23595) for 1 - m. Both know by
    a verifier or a judge of their own what solvers achieve; here the scores of the discussion say
    it, and no reference answer exists.

    Example: a proposal whose solutions are scored 3, 1, 1 and 1: m = 1/4, so r(p) = 3/4.
    """
    paid = interaction_reward(discussions)
    found = [_pay(item) for item in paid.discussions]
    proposals = [d for d in discussions if d.children(None, "proposal")]
    means = [mean for item, mean in found if mean is not None and is_taken_up(item.discussion)]
    return Rewards(
        [item for item, _ in found],
        paid.metrics
        | {
            "proposal/taken_up_rate": fmean(map(is_taken_up, proposals)) if proposals else None,
            "proposal/difficulty": 1 - fmean(means) if means else None,
        },
    )


def _pay(item: RewardedDiscussion) -> tuple[RewardedDiscussion, float | None]:
    """The discussion with its proposal rewarded, and the mean reward of its solutions."""
    turns = list(zip(item.discussion.turns, item.rewards, strict=True))
    of_solutions = [r for turn, r in turns if turn.role == "solution" and r is not None]
    mean = fmean(of_solutions) if of_solutions else None
    worth: float | None = 0.0
    if is_taken_up(item.discussion):
        worth = None if mean is None else 4 * mean * (1 - mean)
    rewards = tuple(worth if turn.role == "proposal" else reward for turn, reward in turns)
    return RewardedDiscussion(item.discussion, rewards), mean
