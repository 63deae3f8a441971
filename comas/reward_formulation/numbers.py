"""Rewards and metrics, which plug-ins may compute by numpy or torch, as Python's own numbers."""

from typing import Any


def as_number(value: Any) -> float | None:
    """Return a number as JSON knows it; None stays None. Raises ValueError for anything else."""
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"reward.scheme gave {value!r} where a number or None is wanted"
        ) from error
