"""An optimiser step's samples over ranks and micro batches, so that no rank waits for another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from comas.policy_optimization.batching import samples_of

ATTENTION_SPAN = 32_768
"""Tokens at which causal attention takes as long as everything else: in a usual transformer
about 12 times the hidden size (per layer 24 h^2 operations a token against 2 h a token and
token before it), more with grouped heads; here that of a 3B model."""


def sample_cost(num_tokens: int) -> float:
    """Relative time that a sample of this many tokens takes, in tokens of a short one."""
    return num_tokens * (1 + num_tokens / ATTENTION_SPAN)


def split_into_micro_batches(
    lengths: Sequence[int],
    *,
    micro_batch_tokens: int,
    num_ranks: int,
    unit: int = 1,
) -> list[list[list[int]]]:
    """Share samples over ranks by cost: indices as [rank][micro batch][sample].

    Args:
        lengths: prompt plus response tokens of each sample.
        micro_batch_tokens: tokens that a micro batch holds at most; a sample above the budget is a
            micro batch of its own.
        unit: as in ``split_into_steps``; what is said of samples then holds for units.

    Every rank gets the same number of micro batches, the last ones possibly empty: ranks call
    the model equally often, as the collectives of ZeRO-3 need. It is the smallest number for
    which the samples, longest first and each to the micro batch of the least cost that has
    room, all find a place. The ranks' n-th micro batches are of like cost, since ZeRO-3 makes
    them wait for each other, and so are the ranks' sums.

    Example: lengths [9, 2, 8, 3, 4], 9 tokens a micro batch, 2 ranks: 9 | 8 | 4 | 3 + 2, so
    rank 0 has [[0], [4]], rank 1 has [[2], [3, 1]].
    """
    lengths = [sum(lengths[i : i + unit]) for i in range(0, len(lengths), unit)]
    sizes = [min(n, micro_batch_tokens) for n in lengths]
    num_batches = max(1, math.ceil(sum(sizes) / micro_batch_tokens / num_ranks))
    while (
        bins := _fill(lengths, sizes, limit=micro_batch_tokens, num_bins=num_batches * num_ranks)
    ) is None:
        num_batches += 1
    shares = _deal(bins, num_ranks=num_ranks)
    return [[samples_of(units, unit) for units in share] for share in shares]


@dataclass
class _Bin:
    """A micro batch while it is filled."""

    samples: list[int] = field(default_factory=list)
    size: int = 0
    cost: float = 0.0


def _fill(
    lengths: Sequence[int], sizes: Sequence[int], *, limit: int, num_bins: int
) -> list[_Bin] | None:
    """Put every sample, longest first, into the bin of the least cost with room for it; None
    where there is none."""
    bins = [_Bin() for _ in range(num_bins)]
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        size = sizes[index]
        roomy = [b for b in bins if b.size + size <= limit]
        if not roomy:
            return None
        best = min(roomy, key=lambda b: b.cost)
        best.samples.append(index)
        best.size += size
        best.cost += sample_cost(lengths[index])
    return bins


def _deal(bins: Sequence[_Bin], *, num_ranks: int) -> list[list[list[int]]]:
    """Bins of like cost to all ranks at once, the costliest to the rank with least so far."""
    ordered = sorted(bins, key=lambda b: -b.cost)
    shares: list[list[list[int]]] = [[] for _ in range(num_ranks)]
    totals = [0.0] * num_ranks
    for start in range(0, len(ordered), num_ranks):
        ranks = sorted(range(num_ranks), key=lambda rank: totals[rank])
        for rank, one in zip(ranks, ordered[start : start + num_ranks], strict=True):
            shares[rank].append(one.samples)
            totals[rank] += one.cost
    return shares
