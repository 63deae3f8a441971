"""Rewards that the program of a discussion returned (``interaction.program``)."""

from collections.abc import Sequence

from comas.interaction.held import outcome_of
from comas.types import Discussion, RewardedDiscussion, Rewards


def program_reward(discussions: Sequence[Discussion]) -> Rewards:
    """Reward each turn as its program did; None if the program returned nothing for it."""
    ended = [(discussion, outcome_of(discussion)) for discussion in discussions]
    return Rewards(
        [RewardedDiscussion.by_turn(d, outcome.rewards if outcome else {}) for d, outcome in ended]
    )
