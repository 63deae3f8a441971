"""An optimiser step's samples over ranks and micro batches, so that no rank waits for another."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from comas.policy_optimization.batching import Tokens

ATTENTION_SPAN = 32_768
"""Tokens at which causal attention takes as long as everything else: in a usual transformer
about 12 times the hidden size (per layer 24 h^2 operations a token against 2 h a token and
token before it), more with grouped heads; here that of a 3B model."""

MOST_COPIES = 8
"""Samples behind one copy of a prompt: attention holds its keys and values for each of them. (With
a prompt of 70 tokens and responses of 25, 8 leave 36 % of the tokens, any number of them 26 %.)"""


def sample_cost(num_tokens: int) -> float:
    """Relative time that a sample of this many tokens takes, in tokens of a short one."""
    return num_tokens * (1 + num_tokens / ATTENTION_SPAN)


def group_samples(
    samples: Sequence[Tokens], *, unit: int, limit: int, share_prompts: bool
) -> dict[tuple[int, ...], int]:
    """Return groups of samples that go into the same micro batch: indices -> tokens in all.

    A group is a unit (see ``split_into_steps``); with ``share_prompts`` it is as many of one prompt
    as surely are within ``limit`` tokens, and ``MOST_COPIES`` samples.

    Example: prompts a, b, a, a of 4 tokens, responses of 1, 2, 3, 2, and a limit of 10:
    (10 - 4) // 3 = 2 samples behind a, so {(0, 2): 4 + 1 + 3, (3,): 4 + 2, (1,): 4 + 2}.
    """
    by_prompt: defaultdict[object, list[int]] = defaultdict(list)
    for i, sample in enumerate(samples):
        by_prompt[tuple(sample.prompt_token_ids) if share_prompts else i // unit].append(i)
    groups: dict[tuple[int, ...], int] = {}
    for indices in by_prompt.values():
        prompt = len(samples[indices[0]].prompt_token_ids)
        responses = [len(samples[i].response_token_ids) for i in indices]
        size = max(unit, min(MOST_COPIES, (limit - prompt) // max(responses)) // unit * unit)
        for start in range(0, len(indices), size):
            num_prompts = 1 if share_prompts else unit
            num_tokens = num_prompts * prompt + sum(responses[start : start + size])
            groups[tuple(indices[start : start + size])] = num_tokens
    return groups


def divide_samples(
    samples: Sequence[Tokens],
    *,
    micro_batch_tokens: int,
    num_ranks: int,
    unit: int = 1,
    share_prompts: bool = False,
    pads: bool = False,
) -> list[list[list[int]]]:
    """Divide samples over ranks as ``split_into_micro_batches`` does, or ``split_into_rows`` where
    a model ``pads``, whole groups of ``group_samples`` at a time: indices as [rank][micro
    batch][sample]."""
    limits = {"micro_batch_tokens": micro_batch_tokens, "num_ranks": num_ranks}
    if pads:
        assert not share_prompts, "a row holds one sample"
        rows = [len(s.prompt_token_ids) + len(s.response_token_ids) for s in samples]
        starts = range(0, len(rows), unit)
        sizes = {tuple(range(i, i + unit)): unit * max(rows[i : i + unit]) for i in starts}
        shares = split_into_rows(list(sizes.values()), **limits)
    else:
        sizes = group_samples(
            samples, unit=unit, limit=micro_batch_tokens, share_prompts=share_prompts
        )
        shares = split_into_micro_batches(list(sizes.values()), **limits)
    groups = list(sizes)
    return [[[i for g in micro for i in groups[g]] for micro in share] for share in shares]


def split_into_micro_batches(
    lengths: Sequence[int], *, micro_batch_tokens: int, num_ranks: int
) -> list[list[list[int]]]:
    """Share samples over ranks by cost: indices as [rank][micro batch][sample].

    ``lengths`` are prompt plus response tokens; a sample above ``micro_batch_tokens`` is a micro
    batch of its own. Every rank gets the same number of micro batches, the last ones possibly
    empty, as the collectives of ZeRO-3 need: the smallest for which the samples, longest first and
    each to the micro batch of the least cost that has room, all find a place. The ranks' n-th micro
    batches are of like cost, since ZeRO-3 makes them wait for each other, and so are their sums.

    Example: lengths [9, 2, 8, 3, 4], 9 tokens a micro batch, 2 ranks: 9 | 8 | 4 | 3 + 2, so
    rank 0 has [[0], [4]], rank 1 has [[2], [3, 1]].
    """
    sizes = [min(n, micro_batch_tokens) for n in lengths]
    num_batches = max(1, math.ceil(sum(sizes) / micro_batch_tokens / num_ranks))
    while (
        bins := _fill(lengths, sizes, limit=micro_batch_tokens, num_bins=num_batches * num_ranks)
    ) is None:
        num_batches += 1
    return _deal(bins, num_ranks=num_ranks)


def split_into_rows(
    lengths: Sequence[int], *, micro_batch_tokens: int, num_ranks: int
) -> list[list[list[int]]]:
    """Share samples over ranks like ``split_into_micro_batches``, but into micro batches of rows
    that are all as long as the longest of them: samples of like length go together.

    Example: lengths [9, 2, 8, 3, 4], 16 tokens a micro batch, 1 rank: 9 | 8 + 4 | 3 + 2, of 9, 2 x
    8 and 2 x 3 tokens.
    """
    # No rank is without one where there are samples for it.
    limit = min(micro_batch_tokens, math.ceil(len(lengths) / num_ranks) * max(lengths, default=0))
    bins: list[_Bin] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if not bins or bins[-1].size + lengths[bins[-1].samples[0]] > limit:
            bins.append(_Bin())
        best, longest = bins[-1], lengths[(bins[-1].samples or [index])[0]]
        best.samples.append(index)
        best.size += longest
        best.cost += sample_cost(longest)
    bins += [_Bin() for _ in range(-len(bins) % num_ranks if bins else num_ranks)]
    return _deal(bins, num_ranks=num_ranks)


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
