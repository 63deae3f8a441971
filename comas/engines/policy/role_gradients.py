"""The gradient norm of each role: solutions, evaluations and scorings on shared weights.

Source: arXiv 2605.24202, which explains collapses of policies that several roles share.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import distributed, nn

from comas.types import TrainingSample


def gradient_norms_by_role(
    model: nn.Module,
    samples: Sequence[TrainingSample],
    indices: Iterable[int],
    divide: Callable[[Sequence[TrainingSample], Sequence[int]], Iterable[Sequence[int]]],
    loss_of: Callable[[Sequence[int]], torch.Tensor],
) -> dict[str, float]:
    """Return role -> norm of its gradient before clipping (collective). The gradients of all roles
    sum to that of the optimiser step on the samples ``indices``.

    Runs a forward and backward pass per role, without touching ``grad``; needs memory for the whole
    float32 gradient on every rank, under any ZeRO stage.

    Args:
        divide: returns this rank's micro batches of samples, equally many on every rank.
        loss_of: returns a micro batch's share of the step's loss, averaged over the ranks.
    """
    rows: dict[str, list[int]] = {}
    for index in indices:
        rows.setdefault(samples[index].role, []).append(index)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    shapes = [getattr(weight, "ds_shape", weight.shape) for weight in weights]  # as gathered
    norms = {}
    for role, its in sorted(rows.items()):  # in the same order on every rank
        gradient = [torch.zeros(shape, device=weights[0].device) for shape in shapes]
        for micro in divide(samples, its):
            parts = torch.autograd.grad(loss_of(micro), weights, materialize_grads=True)
            for whole, part in zip(gradient, parts, strict=True):
                whole += part
        for whole in gradient:
            distributed.all_reduce(whole)
        norms[role] = torch.nn.utils.get_total_norm(gradient).item() / distributed.get_world_size()
    return norms
