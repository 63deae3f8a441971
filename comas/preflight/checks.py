"""What a run needs of the machine beside memory: comparisons, each a line of the table."""

import os
from collections.abc import Iterator, Mapping, Sequence

from comas.config.schema import Config
from comas.engines.allocator import EXPANDABLE
from comas.engines.cluster.placement import check_gpus, gpus_in_all, plan_policy
from comas.preflight.machine import Gpus, needed_driver, why_on_cpu, why_unusable
from comas.preflight.memory import BYTES, GIB, MIB, in_words
from comas.preflight.needs import Need
from comas.types import Device

RECORDS_BYTES = GIB // 2
"""Room on the disk for metrics, discussions, logs and plots."""


def device_needs(config: Config, device: Device, gpus: Gpus) -> list[Need]:
    """Return the device that a run takes; on "cuda" also a driver that its torch can use, and GPUs
    for every policy."""
    chosen = Need(
        "device", config.cluster.device, device, doubt=why_on_cpu(config.cluster.device, gpus)
    )
    return [chosen] if device == "cpu" else [chosen, *_gpu_needs(config, gpus)]


def allocator_needs(config: Config, environment: Mapping[str, str] = os.environ) -> Iterator[Need]:
    """Yield a fault if vLLM's sleep, on GPUs that engines share with ranks, would meet expandable
    segments."""
    # vLLM sees the setting, and leaves its pool alone, under the other name only.
    settings = environment.get("PYTORCH_ALLOC_CONF", "")
    if config.cluster.placement == "colocated" and EXPANDABLE in settings:
        fault = (
            f"PYTORCH_ALLOC_CONF={settings}: a rollout engine that shares its GPU could not "
            f"sleep. Take {EXPANDABLE} out of the variable; the policies' ranks have it by "
            "themselves"
        )
        yield Need("GPU allocator", "no expandable segments", settings, fault)


def disk_need(config: Config, *, sizes: Sequence[int | None], free: int, num_kept: int) -> Need:
    """Return the disk of the run's folder. ``sizes`` are the parameters of the trained policies,
    None where unknown; a resumed run has ``num_kept`` checkpoints already."""
    known = [size or 0 for size in sizes]
    needed = needed_bytes(known, config, num_kept=num_kept)
    checkpoint = in_words(checkpoint_bytes(known, config)) if None not in sizes else "unknown"
    fault = None
    if free < needed:
        fault = (
            f"saves={config.saves}: {in_words(free)} of disk are free, and the trained models, "
            f"{config.training.keep_checkpoints} checkpoints and the one being written need "
            f"{in_words(needed)}; free some, name another disk with saves=..., or keep fewer "
            "(training.keep_checkpoints)"
        )
    words = f"{in_words(needed)} (a checkpoint: {checkpoint})"
    return Need("disk", words, in_words(free), fault)


def checkpoint_bytes(sizes: Sequence[int], config: Config) -> int:
    """Return the bytes of one checkpoint of trained policies with so many parameters each.

    It holds Adam's two moments and the float32 weights, and below ZeRO-3 the model's own weights
    (without ZeRO in float32 these are the float32 weights).

    Example: four policies of 3.09e9 parameters in bfloat16: 14 bytes each under ZeRO-2 are 173
    GB, 12 bytes under ZeRO-3 148 GB.
    """
    policy = config.policy
    is_own_master = policy.zero_stage == 0 and policy.dtype == "float32"
    holds_weights = policy.zero_stage != 3 and not is_own_master
    return (8 + 4 + holds_weights * BYTES[policy.dtype]) * sum(sizes)


def needed_bytes(sizes: Sequence[int], config: Config, *, num_kept: int) -> int:
    """Return the free disk that a run needs whose trained policies have so many parameters each.

    The checkpoints that are kept, the best among them, and the one that is being written, less
    ``num_kept`` that a resumed run has already; the trained agents' models; records.
    """
    num_best = int(config.training.keep_best is not None)
    num_checkpoints = max(1, config.training.keep_checkpoints + num_best + 1 - num_kept)
    parameters = dict(zip(config.trained_policies, sizes, strict=True))
    models = BYTES[config.policy.dtype] * sum(parameters.get(p, 0) for p in config.policy_of_agent)
    return num_checkpoints * checkpoint_bytes(sizes, config) + models + RECORDS_BYTES


def store_need(config: Config, *, free: int) -> Need:
    """Return the shared memory for Ray's object store, which is slow on a disk."""
    needed = config.cluster.object_store_mib * MIB
    doubt = None
    if free < needed:
        doubt = (
            f"/dev/shm has {free // MIB} MiB free, fewer than "
            f"cluster.object_store_mib={config.cluster.object_store_mib}: Ray then keeps its "
            "objects on the disk; lower the key, or give a container more (--shm-size)"
        )
    return Need("/dev/shm", f"{needed // MIB} MiB", f"{free // MIB} MiB", doubt=doubt)


# ---------------------------------------------------------------- GPUs


def _gpu_needs(config: Config, gpus: Gpus) -> list[Need]:
    """Return the driver that torch can use, and GPUs for every policy."""
    placement = plan_policy(config, device="cuda")
    in_all = gpus_in_all(placement, len(config.families))
    wanted = f"{in_all} ({placement.num_gpus} per policy, {placement.policies_per_group} on each)"
    fault = None
    if gpus.num_usable == 0:
        fault = (
            f"cluster.device=cuda: {why_unusable(gpus)}. On purpose on a CPU: cluster.device=cpu "
            "(for tiny models: configs/quickstart.yaml)"
        )
    driver = Need("NVIDIA driver", f"{needed_driver(gpus)} or newer", gpus.driver or "none", fault)
    if fault is not None:
        listed = f"0 (the driver lists {gpus.num_listed})" if gpus.num_listed else "0"
        return [driver, Need("GPUs", wanted, listed, fault)]
    try:
        check_gpus(placement, num_policies=len(config.families), node_gpus=[gpus.num_usable])
    except ValueError as error:
        fault = str(error)
    return [driver, Need("GPUs", wanted, str(gpus.num_usable), fault)]
