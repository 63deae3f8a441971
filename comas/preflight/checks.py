"""Whether the machine has what a run needs: pure comparisons, each a line of the table."""

import os
from collections.abc import Mapping, Sequence

from comas.config.schema import Config
from comas.engines.allocator import EXPANDABLE
from comas.engines.cluster.placement import check_gpus, gpus_in_all, plan_policy
from comas.preflight.machine import Gpus, Machine, needed_driver, why_on_cpu, why_unusable
from comas.preflight.memory import (
    BYTES,
    GIB,
    MIB,
    ModelShape,
    Sharding,
    engine_batch_bytes,
    engine_weight_bytes,
    in_words,
    kv_cache_bytes,
    kv_room_bytes,
)
from comas.preflight.needs import Need
from comas.preflight.sharding import (
    USABLE_SHARE,
    Plan,
    gib,
    plan_update,
)
from comas.types import Device, Question

ENGINE_PROCESS_BYTES = 1.1 * GIB
"""Host memory of a rollout engine's process on a CPU, beside weights and KV cache."""
RANK_PROCESS_BYTES = 0.75 * GIB
"""Host memory of a policy rank's process on a CPU, beside its states."""
RAY_BYTES = 0.7 * GIB
"""Host memory of the driver and of Ray's own processes."""
BFLOAT16_CAPABILITY = (8, 0)
"""Compute capability from which GPUs have bfloat16, and PyTorch's varlen_attn runs."""
OPEN_FILES = 128
"""Open files of a process. A rollout engine has 105 on a CPU, and cannot start with 96."""
OPEN_FILES_OF_AN_ENGINE = 8
"""More of Ray's own processes (70 with 4 engines and ranks), for each engine or rank."""
RECORDS_BYTES = GIB // 2
"""Room on the disk for metrics, discussions, logs and plots."""
RAY_PORTS = 16
"""Ports of Ray's own processes; every engine has one more or two."""


def device_needs(config: Config, device: Device, gpus: Gpus) -> list[Need]:
    """The device that a run takes; on "cuda" a driver that its torch can use, and GPUs for every
    policy."""
    chosen = Need(
        "device", config.cluster.device, device, doubt=why_on_cpu(config.cluster.device, gpus)
    )
    return [chosen] if device == "cpu" else [chosen, *_gpu_needs(config, gpus)]


def gpu_memory_needs(
    config: Config, shapes: Sequence[ModelShape], machine: Machine, *, host_bytes: float
) -> list[Need]:
    """A GPU's memory while a policy is updated and while it samples, and the host's for states that
    are offloaded or wait and for the object store. The run's sharding is settled; ``shapes`` are
    those of every policy's model."""
    stage, offload = config.policy.zero_stage, config.policy.adam_offload
    assert stage is not None and offload is not None, "settled before"
    trained = [shapes[policy] for policy in config.trained_policies]
    plan = plan_update(config, trained, Sharding(stage, offload), machine)
    largest = max(shapes, key=lambda shape: shape.num_parameters)
    return [
        _update_need(plan),
        _sampling_need(config, largest, machine),
        host_need(plan.host + config.cluster.object_store_mib * MIB, host_bytes),
    ]


def gpu_kind_needs(
    config: Config, machine: Machine, environment: Mapping[str, str] = os.environ
) -> list[Need]:
    """What a run on "cuda" needs of its GPUs: that they compute in the dtypes of the configuration,
    an allocator that vLLM's sleep can live with, and a doubt on WSL2."""
    needs = [_capability_need(config, machine)]
    # vLLM sees the setting, and leaves its pool alone, under the other name only.
    settings = environment.get("PYTORCH_ALLOC_CONF", "")
    if config.cluster.placement == "colocated" and EXPANDABLE in settings:
        fault = (
            f"PYTORCH_ALLOC_CONF={settings}: a rollout engine that shares its GPU could not "
            f"sleep. Take {EXPANDABLE} out of the variable; the policies' ranks have it by "
            "themselves"
        )
        needs.append(Need("GPU allocator", "no expandable segments", settings, fault))
    if machine.is_wsl:
        doubt = (
            "WSL2: Windows lets all processes pin about half of the machine's memory, and what "
            "leaves a shared GPU, or is offloaded, is pinned; raise `memory` in .wslconfig if "
            "pinning fails. No run on WSL2 was tried"
        )
        needs.append(Need("pinned memory", "as host memory", "about half of it", doubt=doubt))
    return needs


def cpu_memory_need(
    config: Config, *, sizes: Sequence[int], trained: Sequence[int], host_bytes: float
) -> Need:
    """Host memory of a run on a CPU whose policies have models of so many parameters, of which so
    many are ``trained``: every process with its weights, each rank also with gradients, Adam's
    states and the copy that a checkpoint is written from.
    (What activations need is in the plan of the update, where there is one.)"""
    num_engines, num_ranks = config.rollout.engines_per_policy, config.policy.ranks_per_policy
    cache = config.rollout.cpu_kv_cache_mib * MIB
    # Where the model is sharded, in processes beside the one that schedules.
    shards = config.rollout.tensor_parallel
    processes = ENGINE_PROCESS_BYTES * (1 if shards == 1 else 1 + shards)
    # vLLM keeps a packed copy beside the weights that an update fills.
    engines = sum(
        processes + cache + 2 * BYTES[config.rollout.dtype] * sizes[family[0]]
        for family in config.families
    )
    ranks = sum(
        RANK_PROCESS_BYTES
        + BYTES[config.policy.dtype] * sizes[family[0]]
        + 28 * sum(trained[policy] for policy in family if policy in config.trained_policies)
        for family in config.trained_families
    )
    store = config.cluster.object_store_mib * MIB
    needed = num_engines * engines + num_ranks * ranks + RAY_BYTES + store
    return host_need(needed, host_bytes, less="train LoRA adapters (policy.lora.rank)")


def host_need(
    needed: float,
    host_bytes: float,
    *,
    less: str = "keep Adam's states on the GPU (policy.adam_offload)",
) -> Need:
    """Memory of the host, of which some is left to the system; ``less`` is what would save most."""
    fault = doubt = None
    if needed > host_bytes:
        fault = (
            f"host memory: {gib(needed)} GiB are needed by estimate, and the machine has "
            f"{gib(host_bytes)}; {less}, use fewer agents (society.num_agents) or engines, or "
            "lower cluster.object_store_mib"
        )
    elif needed > USABLE_SHARE * host_bytes:
        doubt = (
            f"host memory: {gib(needed)} of {gib(host_bytes)} GiB are needed by estimate, which "
            "leaves little to everything else"
        )
    return Need("host memory", f"{gib(needed)} GiB", f"{gib(host_bytes)} GiB", fault, doubt)


def disk_need(config: Config, *, sizes: Sequence[int | None], free: int, num_kept: int) -> Need:
    """Disk of the run's folder. ``sizes`` are the parameters of the trained policies, None where
    unknown; a resumed run has ``num_kept`` checkpoints already."""
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
    """Size of one checkpoint of trained policies with so many parameters each.

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
    """Free disk that a run needs whose trained policies have so many parameters each.

    The checkpoints that are kept, the best among them, and the one that is being written, less
    ``num_kept`` that a resumed run has already; the trained agents' models; records.
    """
    num_best = int(config.training.keep_best is not None)
    num_checkpoints = max(1, config.training.keep_checkpoints + num_best + 1 - num_kept)
    of_policy = dict(zip(config.trained_policies, sizes, strict=True))
    models = BYTES[config.policy.dtype] * sum(of_policy.get(p, 0) for p in config.policy_of_agent)
    return num_checkpoints * checkpoint_bytes(sizes, config) + models + RECORDS_BYTES


def store_need(config: Config, *, free: int) -> Need:
    """Shared memory for Ray's object store, which is slow where it has to use the disk."""
    needed = config.cluster.object_store_mib * MIB
    doubt = None
    if free < needed:
        doubt = (
            f"/dev/shm has {free // MIB} MiB free, fewer than "
            f"cluster.object_store_mib={config.cluster.object_store_mib}: Ray then keeps its "
            "objects on the disk; lower the key, or give a container more (--shm-size)"
        )
    return Need("/dev/shm", f"{needed // MIB} MiB", f"{free // MIB} MiB", doubt=doubt)


def held_out_need(train: Sequence[Question], validation: Sequence[Question]) -> Need:
    """Held-out questions that are not trained on, by their texts."""
    trained = {question.text for question in train}
    return shared_need(sum(question.text in trained for question in validation), len(validation))


def shared_need(num_shared: int, num_held_out: int) -> Need:
    """Held-out questions, of which so many are trained on."""
    doubt = None
    if num_shared:
        doubt = (
            f"data.validation: {num_shared} of {num_held_out} questions are among those of "
            "data.train, so that accuracy there is no sign of learning; name another file"
        )
    return Need("held-out questions", "not in data.train", f"{num_shared} are", doubt=doubt)


def files_need(config: Config, *, limit: int) -> Need:
    """Files and connections that one process may have open (Ray takes all of the hard limit)."""
    num_engines = config.rollout.engines_per_policy * len(config.families)
    num_ranks = config.policy.ranks_per_policy * len(config.trained_families)
    needed = OPEN_FILES + OPEN_FILES_OF_AN_ENGINE * (num_engines + num_ranks)
    fault = None
    if limit < needed:
        fault = (
            f"open files: a process may have {limit} (ulimit -Hn), and {needed} are needed by "
            f"estimate; raise the limit (ulimit -n {max(4096, needed)}, or in "
            "/etc/security/limits.conf), or use fewer engines (society.num_agents)"
        )
    return Need("open files", str(needed), str(limit), fault)


def num_ports(config: Config) -> int:
    """Ports that a run opens on this machine, roughly."""
    num_workers = config.rollout.engines_per_policy * config.rollout.tensor_parallel
    per_policy = num_workers + config.policy.ranks_per_policy
    return RAY_PORTS + 2 * per_policy * len(config.families)


def port_need(needed: int, *, free: int) -> Need:
    """Ports for Ray, which takes what is free."""
    fault = None
    if free < needed:
        fault = (
            f"ports: only {free} of {needed} could be opened on 127.0.0.1; end what holds them, or "
            "widen net.ipv4.ip_local_port_range and the limit on open files (ulimit -n)"
        )
    return Need("ports", str(needed), str(free) if fault else "free", fault)


# ---------------------------------------------------------------- GPUs


def _gpu_needs(config: Config, gpus: Gpus) -> list[Need]:
    """What a run on "cuda" needs: a driver that its torch can use, and GPUs for every policy."""
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


def _capability_need(config: Config, machine: Machine) -> Need:
    found = f"{machine.capability[0]}.{machine.capability[1]}"
    keys = {"rollout.dtype": config.rollout.dtype, "policy.dtype": config.policy.dtype}
    halves = [key for key, dtype in keys.items() if dtype != "float32"]
    fault = None
    if halves and machine.capability < BFLOAT16_CAPABILITY:
        fault = (
            f"GPUs of compute capability {found} have no bfloat16, nor FlashAttention, which "
            f"policies use in it: set {' and '.join(halves)} to float32 (slow, and twice the "
            "memory), or use GPUs of 8.0 or newer (A100, RTX 30)"
        )
    needed = "8.0 for bfloat16" if halves else "any"
    return Need("compute capability", needed, found, fault)


def _update_need(plan: Plan) -> Need:
    need, states, peak, free = plan.rank, plan.gpu_states, plan.gpu_peak, plan.gpu_free
    words = (
        f"{gib(peak)} GiB (weights {gib(need.weights)}, optimiser {gib(need.optimizer)}, "
        f"gradients {gib(need.gradients)}, activations and buffers {gib(need.peak - need.states)})"
    )
    fault = doubt = None
    if states > free:
        fault = (
            f"GPU memory: the states of an update fill {gib(states)} GiB of a GPU that has "
            f"{gib(free)} for them; set policy.zero_stage and policy.adam_offload to null, or use "
            "more GPUs per policy (cluster.gpus_per_policy with policy.ranks_per_policy and "
            "rollout.engines_per_policy)"
        )
    elif peak > free:
        doubt = (
            f"GPU memory: an update may need {gib(peak)} GiB of {gib(free)} when its longest "
            "samples meet; lower policy.micro_batch_tokens or rollout.max_prompt_tokens, or set "
            "policy.gradient_checkpointing to true"
        )
    return Need("GPU memory, update", words, f"{gib(free)} GiB", fault, doubt)


def _sampling_need(config: Config, shape: ModelShape, machine: Machine) -> Need:
    weights = engine_weight_bytes(shape, config)
    batch, sequence = engine_batch_bytes(shape, config), kv_cache_bytes(shape, config)
    needed = weights + batch + sequence
    share = config.rollout.gpu_memory_utilization
    given = share * machine.gpu_bytes
    words = (
        f"{gib(needed)} GiB (weights {gib(weights)}, a batch {gib(batch)}, KV cache "
        f"{gib(sequence)})"
    )
    fault = None
    if needed > given:
        fault = (
            f"GPU memory: rollout.gpu_memory_utilization={share:g} gives an engine {gib(given)} "
            "GiB, and its weights with what passes through it at once and the KV cache of one "
            f"longest sequence need {gib(needed)}; raise it, lower rollout.max_prompt_tokens or "
            "rollout.max_num_seqs, or shard engines over more GPUs (rollout.tensor_parallel)"
        )
    room = max(kv_room_bytes(shape, config, gpu_bytes=machine.gpu_bytes), 0) / sequence
    present = f"{gib(given)} GiB ({room:.0f} longest sequences)"
    return Need("GPU memory, sampling", words, present, fault)
