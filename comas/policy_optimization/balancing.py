"""Divide an optimiser step's samples evenly over ranks and micro batches."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from comas.policy_optimization.batching import Tokens

ATTENTION_SPAN = 32_768
"""Length in tokens at which causal attention takes as long as everything else: about 12 times the
hidden size (per layer, 24 h^2 operations per token against 2 h per pair of tokens), more with
grouped heads. This is the value of a 3B model."""

MOST_COPIES = 8
"""Most samples that share one copy of a prompt: attention holds its keys and values for each of
them. (Prompts of 70 and responses of 25 tokens: 8 leave 36 % of the tokens; no limit, 26 %.)"""


def sample_cost(num_tokens: int) -> float:
    """Return the relative time for a sample of this length, in tokens of a short one."""
    return num_tokens * (1 + num_tokens / ATTENTION_SPAN)


def group_samples(
    samples: Sequence[Tokens], *, unit: int, limit: int, share_prompts: bool
) -> dict[tuple[int, ...], int]:
    """Return groups of samples for the same micro batch: indices -> total tokens.

    A group is a unit (see ``split_into_steps``) or, with ``share_prompts``, as many samples of one
    prompt as are sure to fit into ``limit`` tokens, and at most ``MOST_COPIES``.

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
    """Divide samples over ranks as ``split_into_micro_batches`` does, or ``split_into_rows`` if the
    model ``pads``, whole groups of ``group_samples`` at a time: indices as [rank][micro
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
    """Divide samples over ranks by cost: indices as [rank][micro batch][sample].

    ``lengths`` are prompt plus response tokens; a sample above ``micro_batch_tokens`` gets a micro
    batch of its own. All ranks get the same number of micro batches (the last may be empty), as the
    collectives of ZeRO-3 require. It is the smallest number for which all samples fit, taken
    longest first, each into the cheapest micro batch that has room. The ranks' n-th micro batches
    have similar costs, since ZeRO-3 makes ranks wait for each other, and so have their sums.

    Example: lengths [9, 2, 8, 3, 4], 9 tokens a micro batch, 2 ranks: 9 | 8 | 4 | 3 + 2, so
    rank 0 has [[0], [4]], rank 1 has [[2], [3, 1]].
    """
    total = sum(min(n, micro_batch_tokens) for n in lengths)
    num_batches = max(1, math.ceil(total / micro_batch_tokens / num_ranks))
    while (bins := _fill(lengths, micro_batch_tokens, num_bins=num_batches * num_ranks)) is None:
        num_batches += 1
    return _deal(bins, num_ranks=num_ranks)


def split_into_rows(
    lengths: Sequence[int], *, micro_batch_tokens: int, num_ranks: int
) -> list[list[list[int]]]:
    """Divide samples like ``split_into_micro_batches``, but for rows that are padded to the longest
    row of their micro batch: samples of similar length go together.

    Example: lengths [9, 2, 8, 3, 4], 16 tokens a micro batch, 1 rank: 9 | 8 + 4 | 3 + 2, of 9, 2 x
    8 and 2 x 3 tokens.
    """
    # Give every rank a micro batch, if there are enough samples.
    limit = min(micro_batch_tokens, math.ceil(len(lengths) / num_ranks) * max(lengths, default=0))
    order = _longest_first(lengths)
    bins: list[_Bin] = []
    while order:
        longest = lengths[order[0]]
        num_rows = max(1, limit // longest)
        samples, order = order[:num_rows], order[num_rows:]
        bins.append(_Bin(samples, cost=len(samples) * sample_cost(longest)))
    bins += [_Bin() for _ in range(-len(bins) % num_ranks if bins else num_ranks)]
    return _deal(bins, num_ranks=num_ranks)


@dataclass
class _Bin:
    """A micro batch that is being filled."""

    samples: list[int] = field(default_factory=list)
    size: int = 0
    cost: float = 0.0


def _fill(lengths: Sequence[int], limit: int, *, num_bins: int) -> list[_Bin] | None:
    """Put every sample, longest first, into the cheapest bin that has room; None if no bin has."""
    bins = [_Bin() for _ in range(num_bins)]
    for index in _longest_first(lengths):
        size = min(lengths[index], limit)
        roomy = [b for b in bins if b.size + size <= limit]
        if not roomy:
            return None
        best = min(roomy, key=lambda b: b.cost)
        best.samples.append(index)
        best.size += size
        best.cost += sample_cost(lengths[index])
    return bins


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda i: -lengths[i])


def _deal(bins: Sequence[_Bin], *, num_ranks: int) -> list[list[list[int]]]:
    """Give all ranks bins of similar cost, the costliest to the rank with the least so far."""
    ordered = sorted(bins, key=lambda b: -b.cost)
    shares: list[list[list[int]]] = [[] for _ in range(num_ranks)]
    totals = [0.0] * num_ranks
    for start in range(0, len(ordered), num_ranks):
        ranks = sorted(range(num_ranks), key=lambda rank: totals[rank])
        for rank, one in zip(ranks, ordered[start : start + num_ranks], strict=True):
            shares[rank].append(one.samples)
            totals[rank] += one.cost
    return shares
