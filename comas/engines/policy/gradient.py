"""What makes a gradient new weights, and whether they are numbers."""

import math

import torch
from deepspeed import DeepSpeedEngine
from torch import distributed


def apply_gradient(engine: DeepSpeedEngine) -> float | None:
    """Step the optimiser; returns the gradient's global norm before clipping.

    None: the norm is not finite, and weights, optimiser and learning rate stay as they are.
    """
    parameters = list(engine.module.parameters())
    is_float32 = all(parameter.dtype == torch.float32 for parameter in parameters)
    if engine.zero_optimization_stage() == 0 and is_float32:
        # Without ZeRO in float32 DeepSpeed clips but keeps no norm, and steps on any gradient;
        # the gradients are already averaged over the ranks here.
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients).item()
        if not math.isfinite(norm):
            engine.zero_grad()
            return None
        engine.step()
        return norm
    engine.step()
    return float(engine.get_global_grad_norm()) if engine.was_step_applied() else None


def weights_are_finite(model: torch.nn.Module) -> bool:
    """Whether every shard of every rank is, also after a finite gradient; collective."""
    shards = [getattr(parameter, "ds_tensor", parameter) for parameter in model.parameters()]
    num_bad_ranks = torch.tensor(
        float(not all(shard.isfinite().all() for shard in shards)), device=shards[0].device
    )
    distributed.all_reduce(num_bad_ranks)
    return num_bad_ranks.item() == 0
