"""How much memory a rank and an engine need: arithmetic on a model's shape and the settings.

What DeepSpeed holds is read from its sources (0.19.8, ``deepspeed/runtime/zero``); what a layer
keeps for its backward pass was counted with ``torch.autograd.graph.saved_tensors_hooks``.
"""

from dataclasses import dataclass
from typing import NamedTuple

from comas.config.schema import Config, Dpo
from comas.engines.policy.deepspeed_options import BUCKET_ELEMENTS
from comas.engines.rollout.vllm_options import gpu_batched_tokens, lora_room
from comas.policy_optimization.logprobs import CHUNK_SIZE
from comas.preflight.model_shape import ModelShape, kv_cache_bytes, trained_parameters

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MIB = 1 << 20
GIB = 1 << 30
PROCESS_BYTES = 2 * GIB
"""What a process takes of a GPU beside its tensors: CUDA context, NCCL, CUDA graphs."""
RANK_PROCESS_BYTES = 0.75 * GIB
"""Host memory of a policy rank's process on a CPU, beside its states."""
GATHERED_ELEMENTS = 1_000_000_000
"""Weights that ZeRO-3 keeps gathered (``stage3_max_live_parameters``), and those that it updates
at once (``sub_group_size``)."""
TRANSFER_BYTES = GIB
"""Weights on their way to a rollout engine (vLLM's packed buffer)."""


def in_words(num_bytes: float) -> str:
    """``1.5 * GIB -> "1.5 GiB"``, and less than a tenth of one in MiB."""
    return f"{num_bytes / MIB:.0f} MiB" if num_bytes < GIB / 10 else f"{gib(num_bytes)} GiB"


def gib(num_bytes: float) -> str:
    """``1.5 * GIB -> "1.5"``"""
    return f"{num_bytes / GIB:.1f}"


# ---------------------------------------------------------------- a rank of a policy


class Sharding(NamedTuple):
    """How a policy's states are divided: ``policy.zero_stage`` and ``policy.adam_offload``."""

    zero_stage: int
    adam_offload: bool

    def __str__(self) -> str:
        adam = ", Adam's states in host memory" if self.adam_offload else ""
        return f"ZeRO-{self.zero_stage}{adam}"


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
    longest = config.rollout.max_model_len
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
    longest = rollout.max_model_len
    tokens = gpu_batched_tokens(max_model_len=longest, max_num_seqs=rollout.max_num_seqs)
    layer = 2 * shape.hidden_size + 3 * shape.intermediate_size / shards
    logits = 3 * 4 * rollout.max_num_seqs * shape.vocab_size
    cache = kv_cache_bytes(shape, num_tokens=longest, element_size=size)
    return EngineMemory(weights, tokens * layer * size + logits, cache / shards)
