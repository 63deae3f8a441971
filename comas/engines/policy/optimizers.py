"""Optimisers and learning-rate schedules."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from comas.config.plugins import Registry, function_of
from comas.config.schema import Optimization, Policy
from comas.types import Device

FINAL_RATE = 0.1
"""Final share of the learning rate under cosine and linear decay, as in OpenRLHF."""

NamedParameters = dict[str, torch.nn.Parameter]
"""A policy's trained parameters by name. ZeRO and bfloat16 training flatten them: an optimiser of
matrices, such as Muon, needs ``policy.zero_stage=0`` and ``policy.dtype=float32``."""
CreateOptimizer = Callable[[NamedParameters, Optimization], torch.optim.Optimizer]


def adamw(parameters: NamedParameters, optimization: Optimization) -> torch.optim.Optimizer:
    """PyTorch's fused AdamW, which runs on GPU and host and compiles nothing."""
    return torch.optim.AdamW(parameters.values(), fused=True, **_adam_settings(optimization))


def _adam_settings(optimization: Optimization) -> dict[str, Any]:
    return {
        "lr": optimization.learning_rate,
        "betas": (0.9, 0.95),
        "weight_decay": optimization.weight_decay,
    }


OPTIMIZERS: Registry[CreateOptimizer] = Registry(
    {"adamw": adamw},
    group="comas.optimizers",
    wanted="a function from named parameters and Optimization to a torch.optim.Optimizer",
    adapt=function_of("parameters", "optimization"),
)


def create_optimizer(
    parameters: NamedParameters, policy: Policy, optimization: Optimization, *, device: Device
) -> torch.optim.Optimizer:
    """Create the optimiser named by ``optimization.optimizer``.

    AdamW under ZeRO-3 on the GPU is DeepSpeed's FusedAdam (compiled on first use), the only one
    whose states ZeRO-3 can move to the host while the rollout engine generates.
    """
    on_gpu = device == "cuda" and policy.zero_stage == 3 and not policy.adam_offload
    if on_gpu and optimization.optimizer == "adamw":
        from deepspeed.ops.adam import FusedAdam

        settings = _adam_settings(optimization)
        return FusedAdam(list(parameters.values()), adam_w_mode=True, **settings)
    return OPTIMIZERS[optimization.optimizer](parameters, optimization)


def forget_host_buffers(optimizer: torch.optim.Optimizer) -> None:
    """Make DeepSpeed recreate its host buffers of Adam's states.

    Trap: ZeRO-3 keeps them among the states, so they are saved in checkpoints and loaded onto the
    device, and the states would never leave a GPU again.
    """
    for state in optimizer.state.values():
        for name in [name for name in state if name.endswith("_offload_buffer")]:
            del state[name]


@contextmanager
def configured_rates(engine: Any) -> Iterator[None]:
    """Keep learning rates and weight decays of ``engine`` while it loads a checkpoint, which would
    replace them by those of the run before a resume."""
    rates = engine.lr_scheduler.base_lrs
    decays = [group.get("weight_decay") for group in engine.basic_optimizer.param_groups]
    yield
    schedule = engine.lr_scheduler
    schedule.base_lrs = rates
    shares = [share(schedule.last_epoch) for share in schedule.lr_lambdas]
    groups = engine.basic_optimizer.param_groups
    for group, rate, share, decay in zip(groups, rates, shares, decays, strict=True):
        group |= {"initial_lr": rate, "lr": rate * share, "weight_decay": decay}


def create_schedule(
    optimizer: torch.optim.Optimizer, optimization: Optimization, *, num_steps: int | None
) -> torch.optim.lr_scheduler.LambdaLR:
    """Create the schedule: linear warm-up, then ``optimization.lr_schedule``.

    Cosine and linear fall to ``FINAL_RATE`` over ``num_steps``, the expected optimiser steps of the
    run, and stay there. A constant rate does not need ``num_steps``.

    Example: 4 warm-up steps give 1/4, 2/4, 3/4, 1 of the learning rate; of 8 steps, linear then
    falls by 0.18 a step from 0.82 to 0.1, reached at the ninth step.
    """
    from transformers import get_scheduler

    warmup = optimization.warmup_steps
    num_steps = None if num_steps is None else max(num_steps, warmup)
    # The warm-up of transformers begins at 0, where a step does nothing: skip that value.
    skipped = min(1, warmup)
    shape = get_scheduler(
        optimization.lr_schedule,
        optimizer,
        num_warmup_steps=warmup,
        num_training_steps=None if num_steps is None else num_steps + skipped,
    ).lr_lambdas[0]

    def share(step: int) -> float:
        # Beyond its end, the cosine of transformers would rise again.
        reached = step if num_steps is None else min(step, num_steps)
        library_share: float = shape(reached + skipped)
        return library_share if step < warmup else FINAL_RATE + (1 - FINAL_RATE) * library_share

    return torch.optim.lr_scheduler.LambdaLR(optimizer, share)
