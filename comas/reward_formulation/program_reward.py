"""Rewards that the program of a discussion returned (``interaction.program``)."""

from collections.abc import Sequence

from comas.interaction.held import outcome_of
from comas.types import Discussion, RewardedDiscussion, Rewards


def program_reward(discussions: Sequence[Discussion]) -> Rewards:
    """Reward each turn as its program did; None if the program returned nothing for it."""
    outcomes = map(outcome_of, discussions)
    rewards = [{} if outcome is None else outcome.rewards for outcome in outcomes]
    return Rewards(
        [
            RewardedDiscussion(discussion, tuple(paid.get(t.turn_id) for t in discussion.turns))
            for discussion, paid in zip(discussions, rewards, strict=True)
        ]
    )
