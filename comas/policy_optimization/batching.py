"""A buffer into optimiser steps, ranks and micro batches, and those into tensors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import torch
from torch.nn.utils.rnn import pad_sequence

from comas.types import TrainingSample


def num_optimizer_steps(num_samples: int, train_batch_size: int | None) -> int:
    """Optimiser steps in one epoch over a buffer: the number that makes their sizes closest
    to ``train_batch_size`` (None: one step).

    Example: 150 samples by 64 are 2 steps (75 each), 165 are 3 (55 each).
    """
    if train_batch_size is None:
        return min(num_samples, 1)
    return min(num_samples, max(1, math.floor(num_samples / train_batch_size + 0.5)))


def split_into_steps(
    num_samples: int, *, train_batch_size: int | None, rng: Random
) -> list[list[int]]:
    """Shuffle sample indices and cut them into optimiser steps that differ by one at most.

    Nothing is dropped. Example: 5 samples by 2 give 3 steps, e.g. [[4, 0], [2, 1], [3]].
    """
    order = list(range(num_samples))
    rng.shuffle(order)
    num_steps = num_optimizer_steps(num_samples, train_batch_size)
    bounds = [round(i * num_samples / num_steps) for i in range(num_steps + 1)] if order else [0]
    return [order[start:end] for start, end in pairwise(bounds)]


def split_into_micro_batches(
    lengths: Sequence[int],
    *,
    micro_batch_size: int | None,
    micro_batch_tokens: int | None,
    num_ranks: int,
) -> list[list[list[int]]]:
    """Share samples over ranks as micro batches: indices as [rank][micro batch][sample].

    Args:
        lengths: prompt plus response tokens of each sample.
        micro_batch_size: samples a micro batch holds at most, or
        micro_batch_tokens: padded tokens (samples x longest) it holds at most; a sample
            above the budget is a micro batch of its own. Exactly one of the two is given.

    Samples of like length are put together. Every rank gets the same number of micro
    batches, the last ones possibly empty: ranks call the model equally often, as the
    collectives of ZeRO-3 need.

    Example: lengths [9, 2, 8, 3, 4], 2 samples a micro batch, 2 ranks:
    rank 0 has [[0, 2], [1]], rank 1 has [[4, 3], []].
    """
    assert (micro_batch_size is None) != (micro_batch_tokens is None)
    by_length = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    if micro_batch_size is None:
        assert micro_batch_tokens is not None
        batches = _by_tokens(by_length, lengths, micro_batch_tokens)
    else:
        # No rank idles while another has several samples in one micro batch.
        size = min(micro_batch_size, max(1, math.ceil(len(lengths) / num_ranks)))
        batches = [by_length[i : i + size] for i in range(0, len(by_length), size)]
    batches += [[] for _ in range(-len(batches) % num_ranks)]
    return [batches[rank::num_ranks] for rank in range(num_ranks)]


def _by_tokens(order: Sequence[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Cut ``order`` (longest first) where one more sample would exceed the budget."""
    batches: list[list[int]] = []
    for index in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


@dataclass(frozen=True)
class MicroBatch:
    """Samples padded on the right, as the model and the loss take them.

    Right padding needs no attention mask: a causal model never looks at what follows.

    Example: prompt (5, 8), response (7, 9, 1) beside prompt (5,), response (3,)::

        input_ids   [[5, 8, 7, 9, 1],    predicts  [[F, T, T, T, F],
                     [5, 3, 0, 0, 0]]               [T, F, F, F, F]]
        response_ids  [7, 9, 1, 3]       mask      [[T, T, T], [T, F, F]]
    """

    input_ids: torch.Tensor
    """[B, L]"""
    predicts: torch.Tensor
    """[B, L] bool: positions whose logits predict a response token."""
    response_ids: torch.Tensor
    """[n]: the predicted tokens, response after response."""
    mask: torch.Tensor
    """[B, R] bool: True = response token, padded to the longest response."""


def assemble(samples: Sequence[TrainingSample], *, device: torch.device) -> MicroBatch:
    """Pad samples into a micro batch; none at all give one row without response tokens."""
    if not samples:
        return MicroBatch(
            input_ids=torch.zeros(1, 1, dtype=torch.long, device=device),
            predicts=torch.zeros(1, 1, dtype=torch.bool, device=device),
            response_ids=torch.zeros(0, dtype=torch.long, device=device),
            mask=torch.zeros(1, 1, dtype=torch.bool, device=device),
        )
    rows = [torch.tensor(s.prompt_token_ids + s.response_token_ids) for s in samples]
    input_ids = pad_sequence(rows, batch_first=True)
    position = torch.arange(input_ids.shape[1])
    prompts = torch.tensor([len(s.prompt_token_ids) for s in samples])[:, None]
    ends = torch.tensor([len(row) for row in rows])[:, None]
    responses = [token for s in samples for token in s.response_token_ids]
    return MicroBatch(
        input_ids=input_ids.to(device),
        predicts=((position >= prompts - 1) & (position < ends - 1)).to(device),
        response_ids=torch.tensor(responses).to(device),
        mask=response_mask(samples).to(device),
    )


def response_mask(samples: Sequence[TrainingSample]) -> torch.Tensor:
    """[N, T] bool: True for each response's tokens, T the length of the longest response."""
    lengths = torch.tensor([len(s.response_token_ids) for s in samples])
    return torch.arange(int(lengths.max())) < lengths[:, None]


def padded_rollout_logprobs(samples: Sequence[TrainingSample]) -> torch.Tensor:
    """[N, T] float32: the rollout engine's log-probs, 0 where ``response_mask`` is False."""
    rows = [torch.tensor(s.rollout_logprobs, dtype=torch.float32) for s in samples]
    return pad_sequence(rows, batch_first=True)
