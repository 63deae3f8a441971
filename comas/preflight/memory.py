"""How much memory training and sampling need, and the cheapest way to divide a policy's states that
fits: arithmetic on a model's shape, the settings and the machine.

What DeepSpeed holds is read from its sources (0.19.8, ``deepspeed/runtime/zero``); what a layer
keeps for its backward pass was counted with ``torch.autograd.graph.saved_tensors_hooks``.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from comas.config.schema import Config, Dpo
from comas.engines.cluster.placement import plan_policy
from comas.engines.policy.deepspeed_options import BUCKET_ELEMENTS
from comas.engines.rollout.vllm_options import gpu_batched_tokens, lora_room
from comas.policy_optimization.logprobs import CHUNK_SIZE
from comas.preflight.machine import Machine
from comas.preflight.model_shape import ModelShape, trained_parameters
from comas.preflight.needs import Need

if TYPE_CHECKING:
    pass

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MIB = 1 << 20
GIB = 1 << 30
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
GATHERED_ELEMENTS = 1_000_000_000
"""Weights that ZeRO-3 keeps gathered (``stage3_max_live_parameters``), and those that it updates
at once (``sub_group_size``)."""
TRANSFER_BYTES = GIB
"""Weights on their way to a rollout engine (vLLM's packed buffer)."""


# ---------------------------------------------------------------- a rank of a policy


class Sharding(NamedTuple):
    """How a policy's states are divided: ``policy.zero_stage`` and ``policy.adam_offload``."""

    zero_stage: int
    adam_offload: bool


@dataclass(frozen=True)
class RankMemory:
    """Bytes that one rank of a policy needs of its GPU, and of the host.

    Example: Qwen2.5-3B (3.09e9 parameters) in bfloat16 under ZeRO-2 on 2 ranks, nothing
    offloaded: weights 2 x 3.09 = 6.2 GB, optimiser 12 x 3.09 / 2 = 18.5 GB, gradients
    4 x 3.09 / 2 = 6.2 GB; 31 GB together.
    """

    weights: float
    """Weights of the model (of adapters also the base's), and of the reference model where there
    is a KL penalty."""
    optimizer: float
    """Adam's two moments, and the float32 weights that ZeRO keeps beside the model's."""
    gradients: float
    """Added up over the micro batches of an optimiser step."""
    peak: float
    """The most at any one time: these and what comes and goes, or what there is before the first
    update."""
    host: float
    """The most host memory at any one time."""

    @property
    def states(self) -> float:
        """What does not depend on the samples."""
        return self.weights + self.optimizer + self.gradients


def rank_memory(
    shape: ModelShape, config: Config, sharding: Sharding, *, shares_gpu: bool
) -> RankMemory:
    """Return what a rank needs when its longest samples fill its micro batches.

    Of LoRA policies it holds the base once, without gradients and optimiser, and all adapters of
    the family; of a shared GPU nothing of it leaves, but the engine's weights do.
    """
    stage, offload = sharding
    policy, size = config.policy, BYTES[config.policy.dtype]
    is_adapted = policy.lora.rank is not None
    model = size * shape.num_parameters
    whole = trained_parameters(shape, config) * max(map(len, config.trained_families))
    part = whole / (policy.ranks_per_policy if stage > 0 else 1)
    # Without ZeRO in float32 the weights are their own float32 copy.
    masters = 0 if stage == 0 and policy.dtype == "float32" else part
    held = size * whole if stage < 3 else size * (part + min(whole, GATHERED_ELEMENTS))
    has_second = is_adapted or config.algorithm.uses_reference  # the base, or the reference
    weights = held + model * has_second
    optimizer = 0 if offload else 4 * masters + 8 * part
    added_up = size * whole if stage < 2 else 4 * part
    gradients = 0 if offload and stage > 1 else added_up
    # What comes and goes: the gradients of a micro batch with its activations and logits, or a
    # second copy of them; or, while both sides of a GPU are awake, the engine's weights.
    engine = engine_memory(shape, config).weights
    reduction = size * min(whole, BUCKET_ELEMENTS["cuda"]) + (size * part if stage == 2 else 0)
    head = shape.vocab_size * (2 * 4 * CHUNK_SIZE + 4 * shape.hidden_size * (not is_adapted))
    averaging = 0 if offload else 4 * min(masters, GATHERED_ELEMENTS if stage == 3 else whole)
    learning = reduction + max(_activations(shape, config) + head, averaging)
    passing = max(learning, engine + TRANSFER_BYTES if shares_gpu else 0)
    # Trap: ZeRO-3 begins with a float32 buffer of whole gradients, although it updates its parts.
    updated = min(whole, GATHERED_ELEMENTS * policy.ranks_per_policy)
    starting = max(size * whole, size * part + optimizer + 4 * updated) if stage == 3 else 0
    # On the host: what leaves a shared GPU while its engine generates, pinned, or else the largest
    # tensor of a checkpoint; and an offloaded optimiser. Before that, every rank reads the whole
    # model.
    waiting = [engine] if is_adapted else [size * (whole if stage < 3 else part)]
    if not offload and not is_adapted:
        waiting += [4 * masters, 4 * part, 4 * part] + ([added_up] if stage == 3 else [])
    kept = sum(map(_pinned, waiting)) if shares_gpu else 4 * part
    return RankMemory(
        weights,
        optimizer,
        gradients,
        peak=max(starting, weights + optimizer + gradients + passing),
        host=max(model, kept + (_offloaded(part, stage) if offload else 0)),
    )


def tokens_at_once(config: Config) -> int:
    """Return the tokens in the largest micro batch: a sample is never divided, nor is a pair."""
    longest = config.rollout.max_prompt_tokens + config.rollout.longest_response
    if isinstance(config.algorithm, Dpo):
        longest *= 2
    return max(longest, config.policy.micro_batch_tokens)


def layer_activations(shape: ModelShape) -> int:
    """Return the elements that a transformer layer keeps of each token for its backward pass.

    Counted on Qwen2 layers in bfloat16 (in float32 two hidden sizes less): ten of the hidden
    size, keys and values, four of the gated MLP.
    """
    return 10 * shape.hidden_size + 2 * shape.kv_size + 4 * shape.intermediate_size


def _activations(shape: ModelShape, config: Config) -> float:
    layer = layer_activations(shape)
    kept = (shape.num_layers + 1) * layer
    # Each layer's input, and of one layer everything with its gradients.
    recomputed = shape.num_layers * shape.hidden_size + 2 * layer
    tokens, budget = tokens_at_once(config), config.policy.micro_batch_tokens
    checkpointing = config.policy.gradient_checkpointing
    if checkpointing is not None:
        elements = tokens * (recomputed if checkpointing else kept)
    else:
        assert budget is not None, "the configuration's checks refuse this"
        elements = max(budget * kept, tokens * recomputed)
    return BYTES[config.policy.dtype] * elements


def _offloaded(part: float, stage: int) -> float:
    """Return the host memory of an offloaded optimiser with ``part`` of the parameters: float32
    weights, two moments, and gradients twice. Under ZeRO-3 these are pinned: in one buffer, and in
    one for each group of parameters that is updated at once."""
    if stage < 3:
        return 20 * part
    groups, rest = divmod(part, GATHERED_ELEMENTS)
    pinned = groups * _pinned(4 * GATHERED_ELEMENTS) + _pinned(4 * rest)
    return 12 * part + _pinned(4 * part) + pinned


def _pinned(num_bytes: float) -> int:
    """Return the host memory of a buffer as PyTorch pins it: rounded up to a power of two."""
    return 1 << max(int(num_bytes) - 1, 0).bit_length()


# ---------------------------------------------------------------- a rollout engine on a GPU


class EngineMemory(NamedTuple):
    """Bytes that a rollout engine needs of each of its GPUs."""

    weights: float
    """Its shard of the model, and of LoRA policies room for every adapter of the family, of the
    next rank that vLLM makes room for (as if none were sharded)."""
    batch: float
    """What passes through at once, set aside as it starts: of each token the input of a layer
    beside its residual and the gated MLP's three parts; of each sequence the logits in float32,
    their log-probs, and a copy."""
    sequence: float
    """KV cache of one sequence of the greatest length."""


def engine_memory(shape: ModelShape, config: Config) -> EngineMemory:
    """Return what an engine needs whose shape is the largest of the families'."""
    rollout, rank = config.rollout, config.policy.lora.rank
    size, shards = BYTES[rollout.dtype], rollout.tensor_parallel
    weights = size * shape.num_parameters / shards
    if rank is not None:
        adapter = trained_parameters(shape, config) // rank * lora_room(rank)
        weights += size * adapter * max(map(len, config.families))
    longest = rollout.max_prompt_tokens + rollout.longest_response
    tokens = gpu_batched_tokens(max_model_len=longest, max_num_seqs=rollout.max_num_seqs)
    layer = 2 * shape.hidden_size + 3 * shape.intermediate_size / shards
    logits = 3 * 4 * rollout.max_num_seqs * shape.vocab_size
    cache = 2 * shape.num_layers * shape.kv_size * size * longest
    return EngineMemory(weights, tokens * layer * size + logits, cache / shards)


# ---------------------------------------------------------------- the choice


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
    host_bytes: int
    """The machine's memory."""

    @property
    def fits(self) -> bool:
        """True if neither the GPUs nor the host have too little."""
        return self.gpu_peak <= self.gpu_free and self.host <= USABLE_SHARE * self.host_bytes

    def __str__(self) -> str:
        """``a GPU needs 28.7 GiB for states, up to 61.8 of 71.0 in all; the host 256.0 of ...``"""
        return (
            f"a GPU needs {gib(self.gpu_states)} GiB for states, up to {gib(self.gpu_peak)} of "
            f"{gib(self.gpu_free)} in all; the host {gib(self.host)} of {gib(self.host_bytes)} GiB"
        )


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
    choice, numbers = possible[0], ""
    if machine.device == "cuda":
        trained = [shapes[policy] for policy in config.trained_policies]
        plans = [update_memory(config, trained, each, machine) for each in possible]
        plan = next((plan for plan in plans if plan.fits), plans[0])
        if not plan.fits and len(plans) > 1:
            tried = "; ".join(f"{_name_of(each.choice)}: {each}" for each in plans)
            raise ValueError(
                f"an update does not fit into memory by estimate ({tried}). Lower "
                "rollout.max_prompt_tokens, rollout.max_response_tokens or "
                "policy.micro_batch_tokens, set policy.gradient_checkpointing to true, use more "
                "GPUs per policy (policy.ranks_per_policy and rollout.engines_per_policy), or set "
                "policy.zero_stage and policy.adam_offload, which are then taken as they are"
            )
        choice, numbers = plan.choice, f"; {plan}{'' if plan.fits else ': perhaps too much'}"
    why = "the cheapest that fits"
    if config.policy.zero_stage is not None:
        why = "as configured"
    elif config.policy.ranks_per_policy == 1 and choice.zero_stage == 0:
        why = "one rank: nothing to divide"
    policy = dataclasses.replace(config.policy, **choice._asdict())
    settled = dataclasses.replace(config, policy=policy)
    return settled, f"update: {_name_of(choice)} ({why}){numbers}"


def possible_shardings(config: Config, machine: Machine) -> list[Sharding]:
    """Return what the configuration leaves open, in the order of its cost in time: Adam's states on
    the GPU before those in host memory, then the lower stage.

    Left out where there is another: what adds up gradients in bfloat16 (below ZeRO-2, and with
    offloaded states below ZeRO-3), and ZeRO-3 with Adam on a GPU where its optimiser cannot be
    compiled.

    Raises:
        ValueError: the settings exclude each other on this device.
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
            return False
        return machine.has_cuda_compiler or not (on_gpus and stage == 3 and not offload)

    return list(filter(is_sound, possible)) or possible


def update_memory(
    config: Config, shapes: Sequence[ModelShape], choice: Sharding, machine: Machine
) -> UpdateMemory:
    """Return the most memory of an update under ``choice`` of models with these ``shapes``."""
    shares_gpu = config.cluster.placement == "colocated"
    needs = (rank_memory(shape, config, choice, shares_gpu=shares_gpu) for shape in shapes)
    rank = max(needs, key=lambda need: need.peak)
    placement = plan_policy(config, device="cuda")
    # Groups of ranks that this machine has: as many as its GPUs have room for.
    room = machine.num_gpus // placement.num_gpus * placement.policies_per_group
    num_groups = min(len(config.trained_families), room)
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
        host=num_groups * len(placement.policy_slots) * rank.host,
        host_bytes=machine.host_bytes,
    )


def _name_of(choice: Sharding) -> str:
    adam = ", Adam's states in host memory" if choice.adam_offload else ""
    return f"ZeRO-{choice.zero_stage}{adam}"


# ---------------------------------------------------------------- lines of the table


def memory_needs(config: Config, shapes: Sequence[ModelShape], machine: Machine) -> list[Need]:
    """Return the memory that a run needs whose sharding is settled: on GPUs that of one in an
    update and in sampling, and everywhere the host's. ``shapes`` are those of every policy."""
    store = config.cluster.object_store_mib * MIB
    if machine.device == "cpu":
        return [_host_need(_cpu_bytes(config, shapes) + store, machine)]
    stage, offload = config.policy.zero_stage, config.policy.adam_offload
    assert stage is not None and offload is not None, "settled before"
    trained = [shapes[policy] for policy in config.trained_policies]
    plan = update_memory(config, trained, Sharding(stage, offload), machine)
    largest = max(shapes, key=lambda shape: shape.num_parameters)
    sampling = _sampling_need(config, largest, machine)
    return [_update_need(plan), sampling, _host_need(plan.host + store, machine)]


def in_words(num_bytes: float) -> str:
    """``1.5 * GIB -> "1.5 GiB"``, and less than a tenth of one in MiB."""
    return f"{num_bytes / MIB:.0f} MiB" if num_bytes < GIB / 10 else f"{gib(num_bytes)} GiB"


def gib(num_bytes: float) -> str:
    """``1.5 * GIB -> "1.5"``"""
    return f"{num_bytes / GIB:.1f}"


def _cpu_bytes(config: Config, shapes: Sequence[ModelShape]) -> float:
    """Return the host memory of a run on a CPU: every process with its weights, each rank also with
    gradients and Adam's states."""
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
        + 16 * sum(trained.get(policy, 0) for policy in family)
        for family in config.trained_families
    )
    of_engines = config.rollout.engines_per_policy * engines
    return of_engines + config.policy.ranks_per_policy * ranks + RAY_BYTES


def _host_need(needed: float, machine: Machine) -> Need:
    present, fault, doubt = machine.host_bytes, None, None
    said = f"host memory: {gib(needed)} of {gib(present)} GiB are needed by estimate"
    if needed > present:
        fault = (
            f"{said}; train LoRA adapters (policy.lora.rank), use fewer agents "
            "(society.num_agents) or engines, lower cluster.object_store_mib, or on GPUs keep "
            "Adam's states there (policy.adam_offload)"
        )
    elif needed > USABLE_SHARE * present:
        doubt = f"{said}, which leaves little to everything else"
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
            "more GPUs per policy (policy.ranks_per_policy and rollout.engines_per_policy)"
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
            f"GiB, and it needs {gib(needed)}; raise it, lower rollout.max_prompt_tokens or "
            "rollout.max_num_seqs, or shard engines over more GPUs (rollout.tensor_parallel)"
        )
    room = max(given - engine.weights - engine.batch, 0) / engine.sequence
    present = f"{gib(given)} GiB ({room:.0f} longest sequences)"
    return Need("GPU memory, sampling", words, present, fault)
