"""The cheapest sharding of a policy that fits into memory, the checks of memory, and the number of
threads on a CPU."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from comas.config.schema import Config
from comas.engines.cluster.placement import plan_policy
from comas.preflight.checks import Check
from comas.preflight.machine import Machine
from comas.preflight.memory import (
    BYTES,
    GIB,
    MIB,
    PROCESS_BYTES,
    RANK_PROCESS_BYTES,
    ModelShape,
    RankMemory,
    Sharding,
    activations,
    engine_memory,
    gib,
    in_words,
    rank_memory,
    trained_parameters,
)

USABLE_SHARE = 0.95
"""Usable share of memory; the rest of a GPU's is lost to fragmentation."""
ENGINE_PROCESS_BYTES = 1.1 * GIB
"""Host memory of a rollout engine's process, besides weights and KV cache on a CPU."""
RAY_BYTES = 0.7 * GIB
"""Host memory of the driver and Ray's own processes."""
SMALL_PARAMETERS = 20_000_000
"""Smaller models use one thread. On two cores, two threads took 1.2 to 1.6 times as long as one to
sample with 0.17 million parameters, and 0.65 to 0.75 of the time with 135 million; updates took 0.7
of the time with 1 million and 0.55 with 30 million."""


@dataclass(frozen=True)
class UpdateMemory:
    """The memory of an update on GPUs under one sharding, in bytes."""

    choice: Sharding
    rank: RankMemory
    """One rank of the model with the highest peak."""
    gpu_states: float
    """The part of the fullest GPU that does not depend on the samples."""
    gpu_peak: float
    """The peak of the fullest GPU."""
    gpu_free: float
    """GPU memory for tensors."""
    host: float
    """Host memory of all processes on the machine."""
    host_bytes: int
    """The machine's memory."""

    @property
    def fits(self) -> bool:
        """True if both GPU and host memory suffice."""
        return self.gpu_peak <= self.gpu_free and self.host <= USABLE_SHARE * self.host_bytes

    def __str__(self) -> str:
        """``a GPU needs 28.7 GiB for states, up to 61.8 of 71.0 in all; the host 271.5 of ...``"""
        return (
            f"a GPU needs {gib(self.gpu_states)} GiB for states, up to {gib(self.gpu_peak)} of "
            f"{gib(self.gpu_free)} in all; the host {gib(self.host)} of {gib(self.host_bytes)} GiB"
        )


def settle_sharding(
    config: Config, *, shapes: Sequence[ModelShape], machine: Machine
) -> tuple[Config, str]:
    """Return ``config`` with ``policy.zero_stage`` and ``policy.adam_offload`` set, and a log line
    with the reason. ``shapes`` are those of each policy's model.

    Takes the first of ``possible_shardings`` that fits; on a CPU, or if the configuration leaves
    no choice, the first.

    Raises ValueError if the settings exclude each other on this device, or if there is a choice and
    nothing fits (with the numbers).
    """
    possible = possible_shardings(config, machine)
    choice, numbers = possible[0], ""
    if machine.device == "cuda":
        trained = [shapes[policy] for policy in config.trained_policies]
        estimates = [update_memory(config, trained, each, machine) for each in possible]
        found = next((each for each in estimates if each.fits), estimates[0])
        if not found.fits and len(estimates) > 1:
            tried = "; ".join(f"{each.choice}: {each}" for each in estimates)
            raise ValueError(
                f"an update does not fit into memory by estimate ({tried}). Lower "
                "rollout.max_prompt_tokens, rollout.max_response_tokens or "
                "policy.micro_batch_tokens, set policy.gradient_checkpointing to true, use more "
                "GPUs per policy (policy.ranks_per_policy and rollout.engines_per_policy), or set "
                "policy.zero_stage and policy.adam_offload, which are then taken as they are"
            )
        choice, numbers = found.choice, f"; {found}{'' if found.fits else ': perhaps too much'}"
    why = "the cheapest that fits"
    if config.policy.zero_stage is not None:
        why = "as configured"
    elif config.policy.ranks_per_policy == 1 and choice.zero_stage == 0:
        why = "one rank: nothing to divide"
    policy = dataclasses.replace(config.policy, **choice._asdict())
    return dataclasses.replace(config, policy=policy), f"update: {choice} ({why}){numbers}"


def possible_shardings(config: Config, machine: Machine) -> list[Sharding]:
    """Return the shardings that the configuration allows, fastest first: Adam's states on the GPU
    before those in host memory, then by stage.

    Avoids, if possible, those that accumulate gradients in bfloat16 (below ZeRO-2; with offloaded
    states below ZeRO-3), and ZeRO-3 with Adam on a GPU if its optimiser cannot be compiled.

    Raises ValueError if the settings exclude each other on this device.
    """
    policy, on_gpus = config.policy, machine.device == "cuda"
    num_stages = 4 if policy.lora.rank is None else 3  # ZeRO-3 would divide the adapters' base
    stages = range(num_stages) if policy.zero_stage is None else (policy.zero_stage,)
    offloads = (False, True) if policy.adam_offload is None else (policy.adam_offload,)
    choices = [Sharding(s, o) for o in (offloads if on_gpus else (False,)) for s in stages]
    shares_gpus = on_gpus and config.cluster.placement == "colocated"
    possible = [c for c in choices if c.zero_stage > 0 or not (shares_gpus or c.adam_offload)]
    if not possible:
        raise ValueError(
            "policy.zero_stage=0: only with ZeRO does DeepSpeed move states to the host, which "
            "colocated policies do between updates, and policy.adam_offload always; set "
            "policy.zero_stage to 1, 2, 3 or null"
        )

    def is_sound(choice: Sharding) -> bool:
        stage, offload = choice
        if policy.dtype == "bfloat16" and stage < (3 if offload else 2):
            return False  # ZeRO-2 would do with offload, too, but has never run so on a GPU
        if stage == 3 and shares_gpus and not offload and config.optimization.optimizer != "adamw":
            return False  # DeepSpeed moves no other optimiser's states between updates
        return machine.has_cuda_compiler or not (on_gpus and stage == 3 and not offload)

    return list(filter(is_sound, possible)) or possible


def update_memory(
    config: Config, shapes: Sequence[ModelShape], choice: Sharding, machine: Machine
) -> UpdateMemory:
    """Return the peak memory of an update of models with these ``shapes`` under ``choice``."""
    shares_gpu = config.cluster.placement == "colocated"
    ranks = (rank_memory(shape, config, choice, shares_gpu=shares_gpu) for shape in shapes)
    rank = max(ranks, key=lambda rank: rank.peak)
    placement = plan_policy(config, device="cuda")
    # Groups of ranks on this machine: as many as its GPUs have room for.
    room = machine.num_gpus // placement.num_gpus * placement.policies_per_group
    num_groups = min(len(config.trained_families), room)
    engine = config.rollout.gpu_memory_utilization * machine.gpu_bytes if shares_gpu else 0
    sharers = config.cluster.policies_per_gpu
    # Other policies on the same GPU are updated as well, or their engines are awake.
    peak = rank.peak + (sharers - 1) * max(rank.peak, engine)
    if shares_gpu and config.policy.lora.rank is not None:
        # Adapters and their base stay on the GPU while its engine samples.
        peak = max(peak, sharers * (rank.states + engine))
    num_processes = (2 if shares_gpu else 1) * sharers
    return UpdateMemory(
        choice,
        rank,
        gpu_states=sharers * rank.states,
        gpu_peak=peak,
        gpu_free=USABLE_SHARE * machine.gpu_bytes - num_processes * PROCESS_BYTES,
        host=num_groups * len(placement.policy_slots) * (rank.host + RANK_PROCESS_BYTES)
        + num_groups * len(placement.rollout_slots) * ENGINE_PROCESS_BYTES
        + RAY_BYTES,
        host_bytes=machine.host_bytes,
    )


def check_memory(config: Config, shapes: Sequence[ModelShape], machine: Machine) -> list[Check]:
    """Check the memory of a run with a settled sharding: of a GPU in an update and in sampling, and
    of the host. ``shapes`` are those of each policy's model."""
    store = config.cluster.object_store_mib * MIB
    if machine.device == "cpu":
        return [_check_host(_cpu_bytes(config, shapes), store, machine)]
    stage, offload = config.policy.zero_stage, config.policy.adam_offload
    assert stage is not None and offload is not None, "settled before"
    trained = [shapes[policy] for policy in config.trained_policies]
    estimate = update_memory(config, trained, Sharding(stage, offload), machine)
    sampling = _check_sampling(config, max(shapes, key=lambda shape: shape.num_parameters), machine)
    return [_check_update(estimate), sampling, _check_host(estimate.host, store, machine)]


def _cpu_bytes(config: Config, shapes: Sequence[ModelShape]) -> float:
    """Return the host memory of a run on a CPU: each process with its weights, ranks also with
    gradients, Adam's states, activations, and a reference model if the loss has one."""
    has_reference = config.algorithm.uses_reference and config.policy.lora.rank is None
    # The shards of a model run in processes besides the one that schedules.
    shards = config.rollout.tensor_parallel
    processes = ENGINE_PROCESS_BYTES * (1 if shards == 1 else 1 + shards)
    # vLLM keeps a packed copy besides the weights that an update fills.
    engines = sum(
        processes
        + config.rollout.cpu_kv_cache_mib * MIB
        + 2 * BYTES[config.rollout.dtype] * shapes[family[0]].num_parameters
        for family in config.families
    )
    trained = {p: trained_parameters(shapes[p], config) for p in config.trained_policies}
    # Adam's moments and the gradients in float32, and a copy of weights that are not.
    states = 12 + 4 * (config.policy.dtype != "float32")
    ranks = sum(
        RANK_PROCESS_BYTES
        + (1 + has_reference) * BYTES[config.policy.dtype] * shapes[family[0]].num_parameters
        + states * sum(trained.get(policy, 0) for policy in family)
        + activations(shapes[family[0]], config)
        for family in config.trained_families
    )
    of_engines = config.rollout.engines_per_policy * engines
    return of_engines + config.policy.ranks_per_policy * ranks + RAY_BYTES


def _check_host(processes: float, store: int, machine: Machine) -> Check:
    needed, present, error, warning = processes + store, machine.host_bytes, None, None
    said = f"host memory: {gib(needed)} of {gib(present)} GiB are needed by estimate"
    said += f" ({in_words(store)} by Ray's object store)"
    if needed > present:
        error = (
            f"{said}; train LoRA adapters (policy.lora.rank), use fewer agents "
            "(society.num_agents) or engines, lower cluster.object_store_mib, or on GPUs keep "
            "Adam's states there (policy.adam_offload)"
        )
    elif needed > USABLE_SHARE * present:
        warning = f"{said}, which leaves little to everything else"
    return Check("host memory", f"{gib(needed)} GiB", f"{gib(present)} GiB", error, warning)


def _check_update(found: UpdateMemory) -> Check:
    rank, states, peak, free = found.rank, found.gpu_states, found.gpu_peak, found.gpu_free
    words = (
        f"{gib(peak)} GiB (weights {gib(rank.weights)}, optimiser {gib(rank.optimizer)}, "
        f"gradients {gib(rank.gradients)}, activations and buffers {gib(rank.peak - rank.states)})"
    )
    error = warning = None
    if states > free:
        error = (
            f"GPU memory: the states of an update fill {gib(states)} GiB of a GPU that has "
            f"{gib(free)} for them; set policy.zero_stage and policy.adam_offload to null, or use "
            "more GPUs per policy (policy.ranks_per_policy and rollout.engines_per_policy)"
        )
    elif peak > free:
        warning = (
            f"GPU memory: an update may need {gib(peak)} GiB of {gib(free)} when its longest "
            "samples meet; lower policy.micro_batch_tokens or rollout.max_prompt_tokens, or set "
            "policy.gradient_checkpointing to true"
        )
    return Check("GPU memory, update", words, f"{gib(free)} GiB", error, warning)


def _check_sampling(config: Config, shape: ModelShape, machine: Machine) -> Check:
    engine = engine_memory(shape, config)
    share = config.rollout.gpu_memory_utilization
    needed, given = sum(engine), share * machine.gpu_bytes
    words = (
        f"{gib(needed)} GiB (weights {gib(engine.weights)}, a batch {gib(engine.batch)}, KV cache "
        f"{gib(engine.sequence)})"
    )
    error, sharers = None, config.cluster.policies_per_gpu
    if sharers * share > 1:
        error = (
            f"GPU memory: rollout.gpu_memory_utilization={share:g} for each of {sharers} engines "
            f"on a GPU is more than it has; set it to {0.9 / sharers:.2g} or less"
        )
    elif needed > given:
        error = (
            f"GPU memory: rollout.gpu_memory_utilization={share:g} gives an engine {gib(given)} "
            f"GiB, and it needs {gib(needed)}; raise it, lower rollout.max_prompt_tokens or "
            "rollout.max_num_seqs, or shard engines over more GPUs (rollout.tensor_parallel)"
        )
    present, room = f"{gib(given)} GiB", max(given - engine.weights - engine.batch, 0)
    if engine.sequence > 0:  # else the model has no KV cache
        present += f" ({room / engine.sequence:.0f} longest sequences)"
    return Check("GPU memory, sampling", words, present, error)


def num_threads(num_parameters: int, *, num_cores: int, at_work: int) -> int:
    """Return the threads of each of ``at_work`` engines or ranks that work at once.

    Example: two engines of a model with 135 million parameters on 16 cores: 8.
    """
    return 1 if num_parameters < SMALL_PARAMETERS else max(1, num_cores // at_work)


def settle_threads(
    config: Config, *, shapes: Sequence[ModelShape], machine: Machine
) -> tuple[Config, str | None]:
    """Return ``config`` with ``cluster.cpu_threads`` set, and a log line with the reason; on GPUs
    it is left to each node's cores. ``shapes`` are those of each policy's model.

    The engines of all policies work at once, and so do their ranks; with ``training.max_staleness``
    engines and ranks do. (A Ray cluster is treated as one machine.)
    """
    if machine.device == "cuda":
        return config, None
    engines = config.rollout.engines_per_policy * config.rollout.tensor_parallel
    num_engines = engines * len(config.families)
    num_ranks = config.policy.ranks_per_policy * len(config.trained_families)
    overlaps = config.training.max_staleness > 0
    at_work = num_engines + num_ranks if overlaps else max(num_engines, num_ranks)
    largest = max(shape.num_parameters for shape in shapes)
    threads, why = config.cluster.cpu_threads, "as configured"
    if threads is None:
        threads = num_threads(largest, num_cores=machine.num_cores, at_work=at_work)
        why = f"cores: {machine.num_cores}, engines or ranks at work at once: {at_work}"
        if largest < SMALL_PARAMETERS:
            why = f"models of less than {SMALL_PARAMETERS // 10**6} million parameters"
    line = f"threads: {threads} of each engine and rank ({why})"
    cluster = dataclasses.replace(config.cluster, cpu_threads=threads)
    return dataclasses.replace(config, cluster=cluster), line
