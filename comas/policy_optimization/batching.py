"""Split a buffer into optimiser steps, and lay out micro batches as tensors."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from random import Random
from typing import Protocol

import torch
from torch.nn.utils.rnn import pad_sequence

from comas.types import TrainingSample


def num_optimizer_steps(num_samples: int, train_batch_size: int | None) -> int:
    """Return the number of optimiser steps per epoch: ``num_samples / train_batch_size``, rounded,
    or 1 if that is None.

    Example: 150 samples by 64 are 2 steps (75 each), 165 are 3 (55 each).
    """
    num_steps = 1 if train_batch_size is None else int(num_samples / train_batch_size + 0.5)
    return min(num_samples, max(1, num_steps))


def split_into_steps(
    num_samples: int, *, train_batch_size: int | None, rng: Random, unit: int = 1
) -> list[list[int]]:
    """Shuffle sample indices and split them into optimiser steps that differ by one unit at most.

    A unit of neighbours, such as the 2 samples of a DPO pair, stays together. No sample is
    dropped. Example: 5 samples by 2 give 3 steps, e.g. [[4, 0], [2, 1], [3]].
    """
    order = list(range(num_samples // unit))
    rng.shuffle(order)
    size = None if train_batch_size is None else max(1, train_batch_size // unit)
    num_steps = num_optimizer_steps(len(order), size)
    bounds = [round(i * len(order) / num_steps) for i in range(num_steps + 1)] if order else [0]
    return [
        [number * unit + i for number in order[start:end] for i in range(unit)]
        for start, end in pairwise(bounds)
    ]


@dataclass(frozen=True)
class StepTotals:
    """Totals of one optimiser step over all micro batches and ranks."""

    num_tokens: int
    """Sampled response tokens: the denominator of "token_mean"."""
    num_samples: int
    """Responses: the denominator of "sequence_mean"."""
    max_response_tokens: int
    """The greatest length of a response: with ``num_samples`` the denominator of
    "constant_length"."""
    num_ranks: int
    """Factor on the loss, since DeepSpeed averages the ranks' gradients."""


@dataclass(frozen=True)
class MicroBatch:
    """Samples packed into a single row, as inputs of the model and the loss.

    Example: prompt (5, 8), response (7, 9, 1), then prompt (5,), response (3,)::

        input_ids     [[5, 8, 7, 9, 1, 5, 3]]    predicting    [1, 2, 3, 5]
        position_ids  [[0, 1, 2, 3, 4, 0, 1]]    response_ids  [7, 9, 1, 3]
        boundaries    [0, 5, 7]                  mask          [[T, T, T], [T, F, F]]

    Samples can share a single copy of their prompt. Each part then attends to the prompt and,
    causally, to itself. Example: prompt (5, 8), responses (7, 9) and (1,)::

        input_ids     [[5, 8, 7, 9, 1]]    key_places      [0, 1,  0, 1, 2, 3,  0, 1, 4]
        position_ids  [[0, 1, 2, 3, 2]]    key_boundaries  [0, 2, 6, 9]
        boundaries    [0, 2, 4, 5]         predicting      [1, 2, 1]
    """

    input_ids: torch.Tensor
    """[1, L]: L tokens of all samples together."""
    position_ids: torch.Tensor
    """[1, L]: positions within each sample."""
    boundaries: torch.Tensor
    """[B + 1] int32: start of each sample, or part, then L."""
    longest: int
    """Tokens of the longest sample, or part."""
    key_places: torch.Tensor | None
    """[M]: positions in the row that each part attends to; None if samples attend to themselves."""
    key_boundaries: torch.Tensor
    """[B + 1] int32: start of each part in ``key_places``, then M; else ``boundaries``."""
    most_keys: int
    """The largest number of positions that a part attends to."""
    predicting: torch.Tensor
    """[n]: positions in the row whose logits predict a response token."""
    response_ids: torch.Tensor
    """[n]: the predicted tokens, response after response."""
    temperature: torch.Tensor
    """[n]: the sampling temperature of each predicted token."""
    mask: torch.Tensor
    """[B, R] bool: True = response token, padded to the longest response."""


class Tokens(Protocol):
    """The token ids of a sample."""

    @property
    def prompt_token_ids(self) -> Sequence[int]: ...

    @property
    def response_token_ids(self) -> Sequence[int]: ...


def assemble(
    samples: Sequence[Tokens],
    *,
    device: torch.device,
    share_prompts: bool = False,
    temperature: float | Sequence[float] = 1.0,
) -> MicroBatch:
    """Pack samples into a micro batch; no samples give one token and no response. With
    ``share_prompts``, a common prompt is stored once. ``temperature`` is the sampling temperature
    of all samples, or of each."""
    copies = Counter(tuple(sample.prompt_token_ids) for sample in samples if share_prompts)
    tokens: list[int] = []
    positions: list[int] = []
    keys: list[int] = []
    ends, key_ends = [0], [0]

    def lay(part: Sequence[int], behind: Sequence[int] = ()) -> range:
        places = range(len(tokens), len(tokens) + len(part))
        tokens.extend(part)
        positions.extend(range(len(behind), len(behind) + len(part)))
        keys.extend([*behind, *places])
        ends.append(len(tokens))
        key_ends.append(len(keys))
        return places

    prompts = {prompt: lay(prompt) for prompt, count in copies.items() if count > 1}
    mask = response_mask(samples) if samples else torch.zeros(1, 1, dtype=torch.bool)
    predicting: list[int] = []
    response_ids: list[int] = []
    temperatures: list[float] = []
    for i, sample in enumerate(samples):
        prompt, response = tuple(sample.prompt_token_ids), sample.response_token_ids
        if prompt in prompts:
            before = [prompts[prompt][-1], *lay(response, behind=prompts[prompt])]
        else:
            before = [*lay([*prompt, *response])[len(prompt) - 1 :]]
        predicting += before[: len(response)]
        response_ids += response
        of_sample = temperature if isinstance(temperature, float) else temperature[i]
        temperatures += [of_sample] * len(response)
    if not samples:
        lay([0])
    integers = partial(torch.tensor, device=device, dtype=torch.long)
    boundaries = torch.tensor(ends, dtype=torch.int32, device=device)
    return MicroBatch(
        input_ids=integers([tokens]),
        position_ids=integers([positions]),
        boundaries=boundaries,
        longest=max(end - start for start, end in pairwise(ends)),
        key_places=integers(keys) if prompts else None,
        key_boundaries=boundaries.new_tensor(key_ends) if prompts else boundaries,
        most_keys=max(end - start for start, end in pairwise(key_ends)),
        predicting=integers(predicting),
        response_ids=integers(response_ids),
        temperature=torch.tensor(temperatures, device=device),
        mask=mask.to(device),
    )


def response_mask(samples: Sequence[Tokens]) -> torch.Tensor:
    """[N, T] bool: True for each token of a response, T the length of the longest.

    Example: responses of 3 tokens and of 1: [[T, T, T], [T, F, F]]
    """
    rows = [torch.ones(len(s.response_token_ids), dtype=torch.bool) for s in samples]
    return pad_sequence(rows, batch_first=True)


def response_rows(
    values: torch.Tensor | None, samples: Sequence[TrainingSample]
) -> "list[array[float]]":
    """Return the rows of ``values`` [N, T] without padding; [] for None.

    Example: ``[[1.5, 1.0], [-2.0, 0.0]]`` of responses of 2 tokens and 1 token give ``[1.5, 1.0]``
    and ``[-2.0]``.
    """
    rows = [] if values is None else zip(values, samples, strict=True)
    return [array("f", row[: len(sample.response_token_ids)].tolist()) for row, sample in rows]


def rollout_logprobs(samples: Sequence[TrainingSample]) -> torch.Tensor:
    """[N, T] float32: the rollout engine's log-probs, 0 where ``response_mask`` is False."""
    rows = [torch.tensor(s.rollout_logprobs, dtype=torch.float32) for s in samples]
    return pad_sequence(rows, batch_first=True)
