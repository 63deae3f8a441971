"""Checks of what a user's schedule or criticism is, and of what it returns."""

import asyncio
from typing import Any

from comas.config.plugins import function_of
from comas.interaction.prompts import HistoryItem
from comas.types import Role
from comas.utils.terminal import excerpt


def check_roles(found: object) -> None:
    """Raise TypeError if an attribute ``roles`` is no tuple or list of roles."""
    roles = getattr(found, "roles", ())
    if not isinstance(roles, tuple | list) or not all(isinstance(role, Role) for role in roles):
        raise TypeError(f"its roles are {roles!r}, not a tuple of Role")


def as_schedule(found: Any) -> Any:
    """Return a schedule, or None if it is no function (``Registry``)."""
    check_roles(found)
    return function_of("discussions", named=("num_agents", "rules", "rng"))(found)


def check_talks(talks: Any, *, schedule: str, count: int) -> None:
    """Raise ValueError unless a schedule returned a coroutine for each discussion."""
    is_talks = isinstance(talks, list) and all(map(asyncio.iscoroutine, talks))
    if not is_talks or len(talks) != count:
        raise ValueError(
            f"interaction.schedule={schedule} returned {excerpt(str(talks))} for {count} "
            "discussions; let it return a list with a coroutine for each"
        )


def check_history_item(item: Any, *, criticism: str) -> None:
    """Raise ValueError unless a criticism returned what later rounds may see."""
    if not isinstance(item, HistoryItem | None):
        raise ValueError(
            f"interaction.criticism={criticism} returned {excerpt(repr(item))}; let it return what "
            "later rounds may see (Submission.history_item), or None"
        )
