"""The cheapest way to divide a policy's states that fits on this machine, and what it needs."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from comas.config.schema import Config
from comas.engines.cluster.placement import plan_policy
from comas.preflight.machine import Machine
from comas.preflight.memory import (
    BYTES,
    GIB,
    MIB,
    ModelShape,
    RankMemory,
    Sharding,
    engine_memory,
    rank_memory,
    trained_parameters,
)
from comas.preflight.needs import Need

USABLE_SHARE = 0.95
"""Share of a memory that can be filled; of a GPU's, the rest is lost between blocks."""
PROCESS_BYTES = 2 * GIB
"""What a process takes of a GPU beside its tensors: CUDA context, NCCL, CUDA graphs."""
ENGINE_PROCESS_BYTES = 1.1 * GIB
"""Host memory of a rollout engine's process on a CPU, beside weights and KV cache."""
RANK_PROCESS_BYTES = 0.75 * GIB
"""Host memory of a policy rank's process on a CPU, beside its states."""
RAY_BYTES = 0.7 * GIB
"""Host memory of the driver and of Ray's own processes."""


@dataclass(frozen=True)
class UpdateMemory:
    """The memory of an update on GPUs under one sharding, in bytes."""

    choice: Sharding
    rank: RankMemory
    """What one rank needs with the model that needs most."""
    gpu_states: float
    """The most that any GPU holds of what does not depend on the samples."""
    gpu_peak: float
    """The most that any GPU holds at any one time."""
    gpu_free: float
    """What tensors may fill of a GPU."""
    host: float
    """What all ranks on the machine need of its memory."""


def settle_sharding(
    config: Config, *, shapes: Sequence[ModelShape], machine: Machine
) -> tuple[Config, str]:
    """Return ``config`` with ``policy.zero_stage`` and ``policy.adam_offload`` decided, and a line
    that says what and why. ``shapes`` are those of every policy's model.

    What the configuration sets is taken as it is. Of what it leaves open, the first of
    ``possible_shardings`` that fits is taken; on a CPU the first.

    Raises:
        ValueError: the settings exclude each other on this device, or nothing that they leave
            open fits (with the numbers).
    """
    possible = possible_shardings(config, machine)
    if machine.device == "cpu":
        return _settled(config, possible[0]), f"update: {_in_words(possible[0], config)}"
    trained = [shapes[policy] for policy in config.trained_policies]
    plans = [update_memory(config, trained, choice, machine) for choice in possible]
    fitting = [
        plan
        for plan in plans
        if plan.gpu_peak <= plan.gpu_free and plan.host <= USABLE_SHARE * machine.host_bytes
    ]
    if not fitting and len(possible) > 1:
        raise ValueError(_nothing_fits(plans, machine))
    plan = (fitting or plans)[0]
    line = f"update: {_in_words(plan.choice, config)}; {_need(plan, machine)}"
    return _settled(config, plan.choice), line if fitting else f"{line}: perhaps too much"


def possible_shardings(config: Config, machine: Machine) -> list[Sharding]:
    """Return what the configuration leaves open, in the order of its cost in time: Adam's states on
    the GPU before those in host memory, then the lower stage.

    Left out where there is another: what adds up gradients in bfloat16 (below ZeRO-2, and with
    offloaded states below ZeRO-3), and ZeRO-3 with Adam on a GPU where its optimiser cannot be
    compiled.

    Raises:
        ValueError: the settings exclude each other on this device.
    """
    policy = config.policy
    # ZeRO-3 would divide the base that adapters share.
    num_stages = 4 if policy.lora.rank is None else 3
    stages = range(num_stages) if policy.zero_stage is None else (policy.zero_stage,)
    offloads = (False, True) if policy.adam_offload is None else (policy.adam_offload,)
    if machine.device == "cpu":
        offloads = (False,)
    faults = {Sharding(s, o): _fault(s, o, config, machine) for o in offloads for s in stages}
    possible = [choice for choice, fault in faults.items() if fault is None]
    if not possible:
        raise ValueError("; ".join(filter(None, faults.values())))
    return [choice for choice in possible if _is_sound(choice, config, machine)] or possible


def _fault(stage: int, offload: bool, config: Config, machine: Machine) -> str | None:
    """Return why DeepSpeed cannot do this, or None."""
    if machine.device == "cpu" or stage > 0:
        return None
    if config.cluster.placement == "colocated":
        return (
            "policy.zero_stage=0: colocated, the policies' states leave the GPU between updates, "
            "which DeepSpeed only does with ZeRO; set policy.zero_stage to 1, 2, 3 or null, or "
            "cluster.placement to disaggregated"
        )
    if offload:
        return (
            "policy.adam_offload=true with policy.zero_stage=0: DeepSpeed keeps optimiser states "
            "in host memory only with ZeRO; set policy.adam_offload to false or null, or "
            "policy.zero_stage to 1, 2, 3 or null"
        )
    return None


def _is_sound(choice: Sharding, config: Config, machine: Machine) -> bool:
    stage, offload = choice
    if config.policy.dtype == "bfloat16" and stage < (3 if offload else 2):
        return False
    compiles = machine.device == "cuda" and stage == 3 and not offload
    return machine.has_cuda_compiler or not compiles


def update_memory(
    config: Config, shapes: Sequence[ModelShape], choice: Sharding, machine: Machine
) -> UpdateMemory:
    """Return the most memory of an update under ``choice`` of models with these ``shapes``."""
    shares_gpu = config.cluster.placement == "colocated"
    needs = (rank_memory(shape, config, choice, shares_gpu=shares_gpu) for shape in shapes)
    rank = max(needs, key=lambda need: need.peak)
    placement = plan_policy(config, device="cuda")
    # Groups of ranks that this machine has: as many as its GPUs have room for.
    room = machine.num_gpus // placement.gpus_of_a_group * placement.policies_per_group
    num_groups = min(len(config.trained_families) * placement.num_parts, room)
    engine = config.rollout.gpu_memory_utilization * machine.gpu_bytes if shares_gpu else 0
    sharers = config.cluster.policies_per_gpu
    # Of policies that share a GPU others are updated as well, or their engines are awake.
    peak = rank.peak + (sharers - 1) * max(rank.peak, engine)
    if shares_gpu and config.policy.lora.rank is not None:
        # Adapters and their base stay on a GPU while its engine samples.
        peak = max(peak, sharers * (rank.states + engine))
    num_processes = (2 if shares_gpu else 1) * sharers
    return UpdateMemory(
        choice,
        rank,
        gpu_states=sharers * rank.states,
        gpu_peak=peak,
        gpu_free=USABLE_SHARE * machine.gpu_bytes - num_processes * PROCESS_BYTES,
        host=num_groups * placement.ranks_of_a_group * rank.host,
    )


def _settled(config: Config, choice: Sharding) -> Config:
    policy = dataclasses.replace(config.policy, **choice._asdict())
    return dataclasses.replace(config, policy=policy)


# ---------------------------------------------------------------- in words


def gib(num_bytes: float) -> str:
    """``1.5 * GIB -> "1.5"``"""
    return f"{num_bytes / GIB:.1f}"


def _in_words(choice: Sharding, config: Config) -> str:
    """``ZeRO-2, Adam on the GPU (the cheapest that fits)``"""
    policy = config.policy
    if policy.zero_stage is not None:
        why = "as configured"
    elif policy.ranks_per_policy == 1 and choice.zero_stage == 0:
        why = "one rank: nothing to divide"
    else:
        why = "the cheapest that fits"
    adam = ", Adam's states in host memory" if choice.adam_offload else ""
    return f"ZeRO-{choice.zero_stage}{adam} ({why})"


def _need(plan: UpdateMemory, machine: Machine) -> str:
    """``a GPU needs 28.7 GiB for states, up to 61.8 of 71.0 in all; ...``"""
    return (
        f"a GPU needs {gib(plan.gpu_states)} GiB for states, up to {gib(plan.gpu_peak)} of "
        f"{gib(plan.gpu_free)} in all; the host {gib(plan.host)} of {gib(machine.host_bytes)} GiB"
    )


def _nothing_fits(plans: Sequence[UpdateMemory], machine: Machine) -> str:
    tried = [
        f"ZeRO-{plan.choice.zero_stage}{' with offloaded Adam' * plan.choice.adam_offload}: "
        f"{_need(plan, machine)}"
        for plan in plans
    ]
    return (
        f"an update does not fit into memory by estimate ({'; '.join(tried)}). Lower "
        "rollout.max_prompt_tokens, rollout.max_response_tokens or policy.micro_batch_tokens, set "
        "policy.gradient_checkpointing to true, use "
        "more GPUs per policy (policy.ranks_per_policy and "
        "rollout.engines_per_policy), or set policy.zero_stage and policy.adam_offload, which "
        "are then taken as they are"
    )


# ---------------------------------------------------------------- lines of the table


def memory_needs(config: Config, shapes: Sequence[ModelShape], machine: Machine) -> list[Need]:
    """Return the memory that a run needs whose sharding is settled: on GPUs that of one in an
    update and in sampling, and everywhere the host's. ``shapes`` are those of every policy."""
    if machine.device == "cpu":
        return [_host_need(_cpu_bytes(config, shapes), config, machine)]
    stage, offload = config.policy.zero_stage, config.policy.adam_offload
    assert stage is not None and offload is not None, "settled before"
    trained = [shapes[policy] for policy in config.trained_policies]
    plan = update_memory(config, trained, Sharding(stage, offload), machine)
    largest = max(shapes, key=lambda shape: shape.num_parameters)
    store = config.cluster.object_store_mib * MIB
    return [
        _update_need(plan),
        _sampling_need(config, largest, machine),
        _host_need(plan.host + store, config, machine),
    ]


def _cpu_bytes(config: Config, shapes: Sequence[ModelShape]) -> float:
    """Return the host memory of a run on a CPU: every process with its weights, each rank also with
    gradients, Adam's states and the copy that a checkpoint is written from."""
    num_engines, num_ranks = config.rollout.engines_per_policy, config.policy.ranks_per_policy
    # Where the model is sharded, in processes beside the one that schedules.
    shards = config.rollout.tensor_parallel
    processes = ENGINE_PROCESS_BYTES * (1 if shards == 1 else 1 + shards)
    # vLLM keeps a packed copy beside the weights that an update fills.
    engines = sum(
        processes
        + config.rollout.cpu_kv_cache_mib * MIB
        + 2 * BYTES[config.rollout.dtype] * shapes[family[0]].num_parameters
        for family in config.families
    )
    trained = {p: trained_parameters(shapes[p], config) for p in config.trained_policies}
    ranks = sum(
        RANK_PROCESS_BYTES
        + BYTES[config.policy.dtype] * shapes[family[0]].num_parameters
        + 28 * sum(trained.get(policy, 0) for policy in family)
        for family in config.trained_families
    )
    store = config.cluster.object_store_mib * MIB
    return num_engines * engines + num_ranks * ranks + RAY_BYTES + store


def _host_need(needed: float, config: Config, machine: Machine) -> Need:
    present, fault, doubt = machine.host_bytes, None, None
    if needed > present:
        less = "keep Adam's states on the GPU (policy.adam_offload)"
        if machine.device == "cpu":
            less = "train LoRA adapters (policy.lora.rank)"
        fault = (
            f"host memory: {gib(needed)} GiB are needed by estimate, and the machine has "
            f"{gib(present)}; {less}, use fewer agents (society.num_agents) or engines, or lower "
            "cluster.object_store_mib"
        )
    elif needed > USABLE_SHARE * present:
        doubt = (
            f"host memory: {gib(needed)} of {gib(present)} GiB are needed by estimate, which "
            "leaves little to everything else"
        )
    return Need("host memory", f"{gib(needed)} GiB", f"{gib(present)} GiB", fault, doubt)


def _update_need(plan: UpdateMemory) -> Need:
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
            "more GPUs per policy (policy.ranks_per_policy and "
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
    engine = engine_memory(shape, config)
    share = config.rollout.gpu_memory_utilization
    needed, given = sum(engine), share * machine.gpu_bytes
    words = (
        f"{gib(needed)} GiB (weights {gib(engine.weights)}, a batch {gib(engine.batch)}, KV cache "
        f"{gib(engine.sequence)})"
    )
    fault = None
    if needed > given:
        fault = (
            f"GPU memory: rollout.gpu_memory_utilization={share:g} gives an engine {gib(given)} "
            "GiB, and its weights with what passes through it at once and the KV cache of one "
            f"longest sequence need {gib(needed)}; raise it, lower rollout.max_prompt_tokens or "
            "rollout.max_num_seqs, or shard engines over more GPUs (rollout.tensor_parallel)"
        )
    room = max(given - engine.weights - engine.batch, 0) / engine.sequence
    present = f"{gib(given)} GiB ({room:.0f} longest sequences)"
    return Need("GPU memory, sampling", words, present, fault)
