"""Responses compared with others of their group."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

import torch


def within_groups(
    values: torch.Tensor, groups: Sequence[Hashable], relate: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """``relate`` of each group's values, in the places that they came from: [N], float64.

    Groups may have any sizes and lie in any order.

    Example: values [3, 1, 5] of the groups a, b, a, related by ``centered``: [-1, 0, 1].
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    values = values.double()
    related = torch.zeros_like(values)
    for indices in members.values():
        related[indices] = relate(values[indices])
    return related


def centered(values: torch.Tensor) -> torch.Tensor:
    """value - mean; exactly 0 where all are equal, whatever their mean is rounded to."""
    if torch.all(values == values[0]):
        return torch.zeros_like(values)
    return values - values.mean()


def standardized(values: torch.Tensor, *, epsilon: float) -> torch.Tensor:
    """(value - mean) / (std + epsilon), with the sample standard deviation (divisor n - 1);
    exactly 0 where all are equal, and so for a lone value."""
    if torch.all(values == values[0]):
        return torch.zeros_like(values)
    return centered(values) / (values.std(unbiased=True) + epsilon)
