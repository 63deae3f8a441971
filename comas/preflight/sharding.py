"""The cheapest way to divide a policy's states that fits on this machine."""

import dataclasses
from collections.abc import Mapping, Sequence

from comas.config.schema import Config
from comas.engines.cluster.placement import plan_policy
from comas.preflight.machine import Machine
from comas.preflight.memory import GIB, ModelShape, RankMemory, Sharding, model_shape, rank_memory

USABLE_SHARE = 0.95
"""Of a GPU's memory; the rest is lost between the allocator's blocks."""
PROCESS_BYTES = 2 * GIB
"""What a process takes of a GPU beside its tensors: CUDA context, NCCL, CUDA graphs."""


def settle_sharding(
    config: Config, *, models: Sequence[str], machine: Machine
) -> tuple[Config, str]:
    """``config`` with ``policy.zero_stage`` and ``policy.adam_offload`` decided, and a line that
    says what and why. ``models`` are those that are trained.

    What the configuration sets is taken as it is. Of what it leaves open, the first of
    ``choices`` that fits is taken. On a CPU models are looked at only where there is a choice.

    Raises:
        ValueError: the settings exclude each other on this device, or nothing that they leave
            open fits (with the numbers).
    """
    possible = choices(config, machine)
    if machine.device == "cpu" and len(possible) == 1:
        return _settled(config, possible[0]), f"update: {_in_words(possible[0], config)}"
    shapes = [model_shape(model) for model in sorted(set(models))]
    needs = {choice: largest_need(shapes, config, choice, machine) for choice in possible}
    fitting = [choice for choice in possible if fits(needs[choice], config, machine)]
    if not fitting and len(possible) > 1:
        raise ValueError(_nothing_fits(needs, config, machine))
    choice = (fitting or possible)[0]
    line = f"update: {_in_words(choice, config)}; {_need(needs[choice], config, machine)}"
    return _settled(config, choice), line if fitting else f"{line}: perhaps too much"


def choices(config: Config, machine: Machine) -> list[Sharding]:
    """What the configuration leaves open, in the order of its cost in time: Adam's states on the
    GPU before those in host memory, then the lower stage.

    Left out where there is another: what adds up gradients in bfloat16 (below ZeRO-2, and with
    offloaded states below ZeRO-3), and ZeRO-3 with Adam on a GPU where its optimiser cannot be
    compiled. A single rank on a CPU has nothing to divide.

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
    possible = [choice for choice in possible if _is_sound(choice, config, machine)] or possible
    return possible[:1] if machine.device == "cpu" and policy.ranks_per_policy == 1 else possible


def fits(need: RankMemory, config: Config, machine: Machine) -> bool:
    """Whether every GPU has room for the ranks that are on it, and the host for all of its own."""
    if machine.device == "cpu":
        num_ranks = len(config.trained_families) * config.policy.ranks_per_policy
        return num_ranks * (need.peak + need.host) <= USABLE_SHARE * machine.host_bytes
    gpu_bytes = on_one_gpu(config, rank=need.peak, engine=engine_bytes(config, machine))
    host_bytes = ranks_here(config, machine) * need.host
    return (
        gpu_bytes <= free_gpu_bytes(config, machine)
        and host_bytes <= USABLE_SHARE * machine.host_bytes
    )


def _fault(stage: int, offload: bool, config: Config, machine: Machine) -> str | None:
    """Why DeepSpeed cannot do this, or None."""
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


def largest_need(
    shapes: Sequence[ModelShape], config: Config, choice: Sharding, machine: Machine
) -> RankMemory:
    """Of the model that needs most, on one rank."""
    shares_gpu = machine.device == "cuda" and config.cluster.placement == "colocated"
    needs = (rank_memory(shape, config, choice, shares_gpu=shares_gpu) for shape in shapes)
    return max(needs, key=lambda need: need.peak)


def ranks_here(config: Config, machine: Machine) -> int:
    """Ranks on this machine, as many as its GPUs have room for."""
    placement = plan_policy(config, device="cuda")
    room = machine.num_gpus // placement.num_gpus * placement.policies_per_group
    return min(len(config.trained_families), room) * config.policy.ranks_per_policy


def on_one_gpu(config: Config, *, rank: float, engine: float) -> float:
    """The most that any GPU holds while one of its policies is updated, if an updating rank holds
    ``rank`` and an engine that is awake meanwhile holds ``engine``.

    Those of frozen policies are awake, and those of others that are updated in other steps.
    """
    sharers = config.cluster.policies_per_gpu
    every = [_intervals(config, family) for family in config.families]
    groups = [every[start : start + sharers] for start in range(0, len(every), sharers)]
    sums = []
    for group in groups:
        intervals = [own for own in group if own]
        trained = rank if len(set(intervals)) == 1 else max(rank, engine)
        if intervals:
            sums.append(len(intervals) * trained + (len(group) - len(intervals)) * engine)
    return max(sums)


def _intervals(config: Config, family: Sequence[int]) -> frozenset[int]:
    """Steps between the updates of a family's policies, those of frozen ones left out."""
    return frozenset(config.update_every[policy] for policy in family) - {0}


def engine_bytes(config: Config, machine: Machine) -> float:
    """What an engine that is awake takes of a GPU that it shares with ranks."""
    if config.cluster.placement == "disaggregated":
        return 0
    return config.rollout.gpu_memory_utilization * machine.gpu_bytes


def free_gpu_bytes(config: Config, machine: Machine) -> float:
    """What tensors may fill of a GPU, all processes together."""
    num_sides = 2 if config.cluster.placement == "colocated" else 1
    num_processes = num_sides * config.cluster.policies_per_gpu
    return USABLE_SHARE * machine.gpu_bytes - num_processes * PROCESS_BYTES


def _settled(config: Config, choice: Sharding) -> Config:
    policy = dataclasses.replace(config.policy, **choice._asdict())
    return dataclasses.replace(config, policy=policy)


# ---------------------------------------------------------------- in words


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


def _need(need: RankMemory, config: Config, machine: Machine) -> str:
    """``a GPU needs 28.7 GiB for states, up to 61.8 of 71.0 in all; ...``, and what is left to a
    rollout engine that shares the GPU while the policy's states wait in host memory."""
    if machine.device == "cpu":
        num_ranks = len(config.trained_families) * config.policy.ranks_per_policy
        needed = num_ranks * (need.peak + need.host)
        return f"all ranks need up to {gib(needed)} of {gib(machine.host_bytes)} GiB"
    sharers, num_ranks = config.cluster.policies_per_gpu, ranks_here(config, machine)
    states = on_one_gpu(config, rank=need.states, engine=0)
    peak = on_one_gpu(config, rank=need.peak, engine=engine_bytes(config, machine))
    words = (
        f"a GPU needs {gib(states)} GiB for states, up to "
        f"{gib(peak)} of {gib(free_gpu_bytes(config, machine))} in all; the "
        f"host {gib(num_ranks * need.host)} of {gib(machine.host_bytes)} GiB"
    )
    if config.cluster.placement == "disaggregated":
        return words
    asleep = sharers * PROCESS_BYTES / machine.gpu_bytes
    share = (USABLE_SHARE - asleep) / sharers
    return f"{words}; rollout.gpu_memory_utilization has room up to {share:.2f}"


def _nothing_fits(needs: Mapping[Sharding, RankMemory], config: Config, machine: Machine) -> str:
    tried = [
        f"ZeRO-{choice.zero_stage}{' with offloaded Adam' if choice.adam_offload else ''}: "
        f"{_need(need, config, machine)}"
        for choice, need in needs.items()
    ]
    return (
        f"an update does not fit into memory by estimate ({'; '.join(tried)}). Lower "
        "rollout.max_prompt_tokens, rollout.max_response_tokens or policy.micro_batch_tokens, set "
        "policy.gradient_checkpointing to true, use "
        "more GPUs per policy (cluster.gpus_per_policy with policy.ranks_per_policy and "
        "rollout.engines_per_policy), or set policy.zero_stage and policy.adam_offload, which "
        "are then taken as they are"
    )


def gib(num_bytes: float) -> str:
    """``1.5 * GIB -> "1.5"``"""
    return f"{num_bytes / GIB:.1f}"
