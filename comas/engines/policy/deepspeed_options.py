"""DeepSpeed's set-up: environment, process group and configuration."""

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from comas.config.schema import Optimization, Policy
from comas.engines import LOOPBACK_GROUPS, thread_environment
from comas.engines.allocator import rank_allocator
from comas.types import Device

BUCKET_ELEMENTS: dict[Device, int] = {"cuda": 500_000_000, "cpu": 50_000_000}
"""Gradients reduced at once. On a GPU this is DeepSpeed's default; on a CPU the default would take
2 GB of address space, and Linux may then refuse a later fork."""


def process_environment(device: Device, *, threads: int) -> dict[str, str]:
    """Return the environment variables that a policy rank's process must start with."""
    return {
        "DS_ACCELERATOR": device,
        # DeepSpeed compiles operators with the environment's ninja.
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        **thread_environment(threads),
        **LOOPBACK_GROUPS,
        **(rank_allocator() if device == "cuda" else {}),
    }


def join_group(
    device: Device, *, rank: int, world_size: int, rendezvous: Path, timeout_s: float
) -> torch.device:
    """Join the process group of a policy's ranks, if this process has not yet, and return the
    rank's device. ``rendezvous`` is a file that is empty or does not exist yet; ranks wait for each
    other for at most ``timeout_s``."""
    os.environ["DS_ACCELERATOR"] = device
    # Each rank sees only its own GPU, so the local rank is always 0.
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK="0")
    import deepspeed

    if not torch.distributed.is_initialized():
        # An operator for inference only, which DeepSpeed would compile here for a minute.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed(
            dist_backend="nccl" if device == "cuda" else "gloo",
            auto_mpi_discovery=False,
            timeout=timedelta(seconds=timeout_s),
            init_method=f"file://{rendezvous}",
            rank=rank,
            world_size=world_size,
            verbose=False,
        )
    if device == "cuda":
        torch.cuda.set_device(0)
    return torch.device("cuda:0" if device == "cuda" else "cpu")


def deepspeed_config(
    policy: Policy, optimization: Optimization, *, device: Device, num_trained: int
) -> dict[str, Any]:
    """Return DeepSpeed's configuration for a policy with ``num_trained`` trained parameters;
    ``policy.deepspeed_options`` take precedence.

    Batch sizes are placeholders: the trainer marks the end of each optimiser step itself.
    """
    stage = policy.zero_stage
    assert stage is not None, "the preflight chooses a stage where the configuration has none"
    # Trap: DeepSpeed allocates the whole bucket whatever there is to reduce: 1 GB for an adapter.
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
        "zero_allow_untested_optimizer": optimization.optimizer != "adamw",
    }
    # Below ZeRO-2, bfloat16 gradients accumulate in bfloat16: for float32, DeepSpeed refuses
    # (stage 0) or takes an optimiser that fails on a zero gradient (stage 1).
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
