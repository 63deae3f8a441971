"""DPO: train on pairs of a chosen and a rejected response to the same prompt."""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch.nn.functional import logsigmoid

from comas.policy_optimization.batching import StepTotals
from comas.types import TrainingSample


def preference_pairs(
    samples: Sequence[TrainingSample],
) -> list[tuple[TrainingSample, TrainingSample]]:
    """Return (chosen, rejected) for every prompt, in order: an agent's responses to the same prompt
    token ids with the highest and the lowest reward, the earliest ones on ties. Equal rewards, and
    so a single response, give no pair.

    Example: rewards 0.2, 0.8, 0.8, 0.4 of four answers to a question: the second and the first.
    """
    candidates: defaultdict[tuple[int, tuple[int, ...]], list[TrainingSample]] = defaultdict(list)
    for sample in samples:
        candidates[sample.agent_index, tuple(sample.prompt_token_ids)].append(sample)
    pairs = (
        (max(of, key=lambda s: s.reward), min(of, key=lambda s: s.reward))
        for of in candidates.values()
    )
    return [(chosen, rejected) for chosen, rejected in pairs if chosen.reward > rejected.reward]


def dpo_loss(
    logprobs: torch.Tensor,
    *,
    reference_logprobs: torch.Tensor,
    mask: torch.Tensor,
    beta: float,
    totals: StepTotals,
) -> torch.Tensor:
    """A micro batch's share of the mean DPO loss over all pairs (eq. 7 of arXiv 2305.18290)::

        m(y) = sum over the tokens of y of log(pi_theta / pi_ref)
        loss = -log sigmoid(beta * (m(chosen) - m(rejected)))

    Rows [2P, R] alternate between chosen and rejected; an empty micro batch has one row, no pair.
    Equal to OpenRLHF's DPOLoss, whose mean is over the micro batch's own pairs.
    """
    margins = ((logprobs - reference_logprobs) * mask).sum(dim=1)
    paired = margins[: len(margins) // 2 * 2]
    losses = -logsigmoid(beta * (paired[0::2] - paired[1::2]))
    return losses.sum() / (totals.num_samples / 2) * totals.num_ranks
