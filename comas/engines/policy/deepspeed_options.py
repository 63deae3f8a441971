"""How DeepSpeed is set up: the process's environment, its group and its configuration."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from comas.config.schema import Optimization, Policy
from comas.engines import LOOPBACK_GROUPS, Rendezvous
from comas.engines.allocator import rank_allocator
from comas.types import Device

BUCKET_ELEMENTS: dict[Device, int] = {"cuda": 500_000_000, "cpu": 50_000_000}
"""The most gradients that are reduced at once. On a GPU DeepSpeed's default; on a CPU it would be
2 GB of address space, which a later fork may be refused for."""

FINAL_RATE = 0.1
"""Share of the learning rate to which cosine and linear fall, as in OpenRLHF."""


def process_environment(device: Device, *, host_threads: int) -> dict[str, str]:
    """Environment variables a policy rank's process has to be started with.

    On CPU it computes on one thread: spinning threads of several engines on the same cores slow
    each other down many times over. On GPU it has ``host_threads``, for an optimiser in host
    memory; left unset, Ray makes that one as well. ``OMP_NUM_THREADS`` of the environment
    comes first.
    """
    threads = host_threads if device == "cuda" else 1
    return {
        "DS_ACCELERATOR": device,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        **LOOPBACK_GROUPS,
        **(rank_allocator() if device == "cuda" else {}),
    }


def join_group(
    device: Device, *, rank: int, world_size: int, rendezvous: Rendezvous
) -> torch.device:
    """Join the process group of a policy's ranks; returns the rank's device.

    A process belongs to one group for life: a later call with the same rank and size joins
    nothing anew.
    """
    os.environ["DS_ACCELERATOR"] = device
    # Ray shows each rank its own GPU only, so the local rank is 0 on every rank.
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK="0")
    import deepspeed

    if torch.distributed.is_initialized():
        assert torch.distributed.get_rank() == rank
        assert torch.distributed.get_world_size() == world_size
    else:
        # An operator of inference alone, which DeepSpeed would compile here for a minute.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed(
            dist_backend="nccl" if device == "cuda" else "gloo",
            auto_mpi_discovery=False,
            init_method=_init_method(rendezvous),
            rank=rank,
            world_size=world_size,
            verbose=False,
        )
    if device == "cuda":
        torch.cuda.set_device(0)
    return torch.device("cuda:0" if device == "cuda" else "cpu")


def _init_method(rendezvous: Rendezvous) -> str:
    if isinstance(rendezvous, Path):
        return f"file://{rendezvous}"
    # By itself rank 0 would open a port, which somebody else may have taken by then.
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = str(True)
    host, port = rendezvous
    return f"tcp://{host}:{port}"


def deepspeed_config(
    policy: Policy, optimization: Optimization, *, device: Device, num_trained: int
) -> dict[str, Any]:
    """DeepSpeed's configuration of the engine of a policy that trains so many parameters.

    Micro batches vary in number, so the trainer marks the boundary of each optimiser step
    itself; DeepSpeed's own batch sizes are placeholders. ``policy.deepspeed_options`` come last.
    """
    stage = policy.zero_stage
    assert stage is not None, "the preflight chooses a stage where the configuration has none"
    # Trap: the buffer is as large as it may be, whatever there is to reduce: 1 GB for an adapter.
    bucket = min(num_trained, BUCKET_ELEMENTS[device])
    zero: dict[str, Any] = {"stage": stage, "reduce_bucket_size": bucket}
    if stage > 0 and policy.adam_offload and device == "cuda":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "steps_per_print": None,
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": policy.dtype == "bfloat16"},
        "gradient_clipping": optimization.max_grad_norm,
    }
    # Below ZeRO-2, bfloat16 gradients add up in bfloat16: asked for float32, DeepSpeed refuses
    # (stage 0) or takes an optimiser that fails on a gradient of zero (stage 1). Under ZeRO-2
    # with its optimiser on the host they still do.
    if stage > 1:
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    return _merged(config, policy.deepspeed_options)


def _merged(config: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a": {"x": 1, "y": 2}}`` with ``{"a": {"y": 3}}`` is ``{"a": {"x": 1, "y": 3}}``."""
    both = {
        name: _merged(config[name], value)
        for name, value in options.items()
        if isinstance(value, Mapping) and isinstance(config.get(name), dict)
    }
    return {**config, **options, **both}


def create_optimizer(
    parameters: list[torch.nn.Parameter],
    policy: Policy,
    optimization: Optimization,
    *,
    device: Device,
) -> torch.optim.Optimizer:
    """AdamW: PyTorch's fused form, which runs on GPU and host and compiles nothing.

    ZeRO-3 with its optimiser on the GPU takes DeepSpeed's FusedAdam (compiled on first use),
    the only one whose states it can move to the host while the rollout engine generates.
    """
    beta1, beta2 = optimization.betas
    settings: dict[str, Any] = {
        "lr": optimization.learning_rate,
        "betas": (beta1, beta2),
        "weight_decay": optimization.weight_decay,
    }
    if device == "cuda" and policy.zero_stage == 3 and not policy.adam_offload:
        from deepspeed.ops.adam import FusedAdam

        return FusedAdam(parameters, adam_w_mode=True, **settings)
    return torch.optim.AdamW(parameters, fused=True, **settings)


def forget_host_buffers(optimizer: torch.optim.Optimizer) -> None:
    """Have DeepSpeed make its host buffers of Adam's states anew.

    Trap: ZeRO-3 keeps them among the states, so that a checkpoint has them, and loading moves them
    to the device: the states would never leave a GPU again.
    """
    for state in optimizer.state.values():
        for name in [name for name in state if name.endswith("_offload_buffer")]:
            del state[name]


def create_schedule(
    optimizer: torch.optim.Optimizer, optimization: Optimization, *, num_steps: int | None
) -> torch.optim.lr_scheduler.LambdaLR:
    """The learning rate: a linear warm-up, then ``optimization.lr_schedule``.

    ``num_steps`` is how many optimiser steps the run is expected to make: cosine and linear fall
    over them to ``FINAL_RATE`` of it, and stay there if there are more. A constant rate needs none.

    Example: 4 warm-up steps give 1/4, 2/4, 3/4, 1 of the learning rate; of 8 steps, linear then
    falls by 0.18 a step from 0.82 to 0.1, which it has from the ninth step on.
    """
    from transformers import get_scheduler

    warmup = optimization.warmup_steps
    # A warm-up of transformers begins with a rate of 0, at which a step does nothing: this one
    # begins at its second value.
    skipped = min(1, warmup)
    library = get_scheduler(
        optimization.lr_schedule,
        optimizer,
        num_warmup_steps=warmup,
        num_training_steps=None if num_steps is None else num_steps + skipped,
    )
    [shape] = library.lr_lambdas

    def share(step: int) -> float:
        # Past its end, the cosine of transformers would rise again.
        reached = step if num_steps is None else min(step, num_steps)
        library_share: float = shape(reached + skipped)
        return library_share if step < warmup else FINAL_RATE + (1 - FINAL_RATE) * library_share

    return torch.optim.lr_scheduler.LambdaLR(optimizer, share)
