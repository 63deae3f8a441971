"""Checks of what a reward scheme returned."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from comas.reward_formulation.reading import as_number
from comas.types import Discussion, RewardedDiscussion, Rewards


def checked(found: Any, discussions: Sequence[Discussion]) -> Rewards:
    """Return the rewards of ``discussions``, without those of turns that no agent generated or
    whose role is not trained. Raises ValueError if a scheme returned anything else."""
    items = listed(found.discussions) if isinstance(found, Rewards) else []
    rewarded = [item.discussion for item in items if isinstance(item, RewardedDiscussion)]
    if not isinstance(found, Rewards) or len(items) > len(rewarded) or rewarded != [*discussions]:
        num = f" of {len(rewarded)}" * isinstance(found, Rewards)
        raise ValueError(
            f"reward.scheme returned {type(found).__name__}{num} for {len(discussions)} "
            "discussions; let it return Rewards, with a RewardedDiscussion for each, unchanged and "
            "in their order"
        )
    metrics = found.metrics or {}
    if not isinstance(metrics, Mapping) or not all(isinstance(n, str) for n in metrics):
        raise ValueError(f"reward.scheme returned metrics {metrics!r}; let them be numbers by name")
    if "step" in metrics:
        raise ValueError("reward.scheme returned a metric named step; give it another name")
    return Rewards(
        [_of_agents(item) for item in items], {n: as_number(metrics[n]) for n in metrics}
    )


def _of_agents(item: RewardedDiscussion) -> RewardedDiscussion:
    turns, rewards = item.discussion.turns, [as_number(each) for each in listed(item.rewards)]
    if len(rewards) != len(turns) or not all(r is None or isfinite(r) for r in rewards):
        raise ValueError(
            f"reward.scheme gave {item.rewards} to the {len(turns)} turns of discussion "
            f"{item.discussion.discussion_id}; let it give each turn a finite number or None"
        )
    paid = [
        reward if not turn.is_given and item.discussion.roles[turn.role].is_trained else None
        for turn, reward in zip(turns, rewards, strict=True)
    ]
    return replace(item, rewards=tuple(paid))


def listed(found: Any) -> list[Any]:
    """Return what a plug-in returned as a list; empty if it is none, such as a single number."""
    try:
        return [] if isinstance(found, Mapping) else list(found)
    except TypeError:
        return []
