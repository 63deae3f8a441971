"""The cheapest way to divide a policy's states that fits on this machine."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from comas.config.schema import Config
from comas.engines.cluster.placement import plan_policy
from comas.preflight.machine import Machine
from comas.preflight.memory import GIB, ModelShape, RankMemory, Sharding, model_shape, rank_memory

USABLE_SHARE = 0.95
"""Share of a memory that can be filled; of a GPU's, the rest is lost between blocks."""
PROCESS_BYTES = 2 * GIB
"""What a process takes of a GPU beside its tensors: CUDA context, NCCL, CUDA graphs."""


@dataclass(frozen=True)
class Plan:
    """The memory of an update under one sharding, in bytes; of GPUs 0 on a CPU."""

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
    host_free: float

    @property
    def fits(self) -> bool:
        """Whether there is room on every GPU, and on the host."""
        return self.gpu_peak <= self.gpu_free and self.host <= self.host_free


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
    plans = [plan_update(config, shapes, choice, machine) for choice in possible]
    fitting = [plan for plan in plans if plan.fits]
    if not fitting and len(possible) > 1:
        raise ValueError(_nothing_fits(plans, config, machine))
    plan = (fitting or plans)[0]
    line = f"update: {_in_words(plan.choice, config)}; {_need(plan, config, machine)}"
    return _settled(config, plan.choice), line if fitting else f"{line}: perhaps too much"


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


def plan_update(
    config: Config, shapes: Sequence[ModelShape], choice: Sharding, machine: Machine
) -> Plan:
    """The memory of an update under ``choice`` of models with these ``shapes``."""
    host_free = USABLE_SHARE * machine.host_bytes
    shares_gpu = machine.device == "cuda" and config.cluster.placement == "colocated"
    needs = (rank_memory(shape, config, choice, shares_gpu=shares_gpu) for shape in shapes)
    rank = max(needs, key=lambda need: need.peak)
    num_families = len(config.trained_families)
    if machine.device == "cpu":
        # The model that is loaded is the one that is trained.
        host = num_families * config.policy.ranks_per_policy * (rank.peak + rank.checkpoint)
        return Plan(choice, rank, 0, 0, 0, host, host_free)
    placement = plan_policy(config, device="cuda")
    # Groups of ranks that this machine has: as many as its GPUs have room for.
    room = machine.num_gpus // placement.gpus_of_a_group * placement.policies_per_group
    num_ranks = min(num_families * placement.num_parts, room) * placement.ranks_of_a_group
    engine = config.rollout.gpu_memory_utilization * machine.gpu_bytes if shares_gpu else 0
    num_processes = (2 if shares_gpu else 1) * config.cluster.policies_per_gpu
    # Adapters and their base stay on a GPU while its engine samples.
    is_shared_by_adapters = shares_gpu and config.policy.lora.rank is not None
    sampling = config.cluster.policies_per_gpu * (rank.states + engine)
    return Plan(
        choice,
        rank,
        gpu_states=on_one_gpu(config, rank=rank.states, engine=0),
        gpu_peak=max(
            on_one_gpu(config, rank=rank.peak, engine=engine),
            sampling if is_shared_by_adapters else 0,
        ),
        gpu_free=USABLE_SHARE * machine.gpu_bytes - num_processes * PROCESS_BYTES,
        host=num_ranks * rank.host,
        host_free=host_free,
    )


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


def _need(plan: Plan, config: Config, machine: Machine) -> str:
    """``a GPU needs 28.7 GiB for states, up to 61.8 of 71.0 in all; ...``, and what is left to a
    rollout engine that shares the GPU while the policy's states wait in host memory."""
    host = f"{gib(plan.host)} of {gib(machine.host_bytes)} GiB"
    if machine.device == "cpu":
        return f"all ranks need up to {host}"
    words = (
        f"a GPU needs {gib(plan.gpu_states)} GiB for states, up to "
        f"{gib(plan.gpu_peak)} of {gib(plan.gpu_free)} in all; the host {host}"
    )
    if config.cluster.placement == "disaggregated":
        return words
    sharers = config.cluster.policies_per_gpu
    asleep = sharers * PROCESS_BYTES / machine.gpu_bytes
    share = (USABLE_SHARE - asleep) / sharers
    return f"{words}; rollout.gpu_memory_utilization has room up to {share:.2f}"


def _nothing_fits(plans: Sequence[Plan], config: Config, machine: Machine) -> str:
    tried = [
        f"ZeRO-{plan.choice.zero_stage}{' with offloaded Adam' * plan.choice.adam_offload}: "
        f"{_need(plan, config, machine)}"
        for plan in plans
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
