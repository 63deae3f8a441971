"""Estimates of the memory of a rank and an engine, from a model's shape and the settings.

DeepSpeed's buffers are taken from its sources (0.19.8, ``deepspeed/runtime/zero``); the activations
of a layer were counted with ``torch.autograd.graph.saved_tensors_hooks``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from comas.config.paths import REPOSITORY
from comas.config.schema import Config, Dpo
from comas.engines.policy.deepspeed_options import BUCKET_ELEMENTS
from comas.engines.rollout.vllm_options import gpu_batched_tokens, lora_room
from comas.policy_optimization.logprobs import CHUNK_SIZE
from comas.utils.model_folder import description_of, without_weights

if TYPE_CHECKING:
    from transformers import PretrainedConfig

SHIPPED_SHAPES = REPOSITORY / "configs/models"
"""Configurations of Qwen models, for their shapes before the models are downloaded."""
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MIB = 1 << 20
GIB = 1 << 30
PROCESS_BYTES = 2 * GIB
"""GPU memory of a process besides its tensors: CUDA context, NCCL, CUDA graphs."""
RANK_PROCESS_BYTES = 0.75 * GIB
"""Host memory of a policy rank's process on a CPU, besides its states."""
GATHERED_ELEMENTS = 1_000_000_000
"""Weights that ZeRO-3 keeps gathered (``stage3_max_live_parameters``), and that it updates at once
(``sub_group_size``)."""
TRANSFER_BYTES = GIB
"""vLLM's packed buffer for weights on their way to a rollout engine."""


def in_words(num_bytes: float) -> str:
    """``1.5 * GIB -> "1.5 GiB"``; below 0.1 GiB in MiB."""
    return f"{num_bytes / MIB:.0f} MiB" if num_bytes < GIB / 10 else f"{gib(num_bytes)} GiB"


def gib(num_bytes: float) -> str:
    """``1.5 * GIB -> "1.5"``"""
    return f"{num_bytes / GIB:.1f}"


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a causal language model."""

    num_parameters: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    query_size: int
    """Query heads times head size."""
    kv_size: int
    """Key heads times head size."""
    vocab_size: int
    has_qk_norm: bool = False
    """Queries and keys are normalised, as in Qwen3."""


def shipped_shape(model: str) -> Path | None:
    """Return the folder of ``configs/models/`` with the config.json of a hub name, if any."""
    shipped = SHIPPED_SHAPES / model.removeprefix("Qwen/")
    is_shipped = model.startswith("Qwen/") and shipped.is_dir() and not Path(model).is_dir()
    return shipped if is_shipped else None


def model_shape(model: str) -> ModelShape:
    """Return the shape of a model (folder or hub name) from its config.json, or from the one that
    is shipped in ``configs/models/``. Raises what ``without_weights`` does."""
    modules = without_weights(str(shipped_shape(model) or description_of(model)))
    text = modules.config.get_text_config()
    query_sizes, kv_sizes = zip(*map(_query_and_kv_size, text.per_layer_config), strict=True)
    return ModelShape(
        num_parameters=sum(parameter.numel() for parameter in modules.parameters()),
        num_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        intermediate_size=_intermediate_size(text),
        query_size=max(query_sizes),
        kv_size=max(kv_sizes),
        vocab_size=text.vocab_size,
        has_qk_norm=any("q_norm" in name for name, _ in modules.named_modules()),
    )


def _query_and_kv_size(layer: "PretrainedConfig") -> tuple[int, int]:
    """Return query heads and key heads times head size of a layer; zeros without attention."""
    heads = getattr(layer, "num_attention_heads", None) or 0
    head_size = getattr(layer, "head_dim", None) or layer.hidden_size // max(heads, 1)
    return heads * head_size, (getattr(layer, "num_key_value_heads", None) or heads) * head_size


def _intermediate_size(text: "PretrainedConfig") -> int:
    """Return the hidden units of the MLPs that a token passes through in a layer, its experts and
    the shared ones together.

    Example: Qwen3-30B-A3B sends a token to 8 of its 128 experts of 768 units: 6144.
    """
    dense = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    num_experts = getattr(text, "num_experts_per_tok", None) or 0
    num_experts = num_experts or getattr(text, "top_k_experts", None) or 0  # Gemma 4
    expert = getattr(text, "moe_intermediate_size", None) or dense
    shared = getattr(text, "shared_expert_intermediate_size", None) or (
        (getattr(text, "n_shared_experts", None) or 0) * expert
    )
    return max(dense, num_experts * expert + shared)


def kv_cache_bytes(shape: ModelShape, *, num_tokens: int, element_size: int) -> int:
    """Return the KV cache of one sequence, assuming full attention in every layer."""
    return 2 * shape.num_layers * shape.kv_size * element_size * num_tokens


def trained_parameters(shape: ModelShape, config: Config) -> int:
    """Return the trained parameters of a policy: all of the model's, or those of one LoRA adapter
    of all linear layers (an upper bound for any ``policy.lora.target_modules``).

    Example: rank 16 on Qwen2.5-3B (36 layers, 2048, 11008, keys 256) are 16 x (4 x 2048 +
    2 x 2304 + 3 x 13056) a layer, 30 million in all.
    """
    if config.policy.lora.rank is None:
        return shape.num_parameters
    hidden, inner, keys = shape.hidden_size, shape.intermediate_size, shape.kv_size
    ends = 2 * (hidden + shape.query_size) + 2 * (hidden + keys) + 3 * (hidden + inner)
    return config.policy.lora.rank * shape.num_layers * ends


class Sharding(NamedTuple):
    """The settings ``policy.zero_stage`` and ``policy.adam_offload``."""

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
    """Weights of the policy, the base of adapters, and the reference model of a KL penalty."""
    optimizer: float
    """Adam's two moments, and ZeRO's float32 copy of the weights."""
    gradients: float
    """Gradients accumulated over the micro batches of an optimiser step."""
    peak: float
    """The peak: these states with temporary buffers, or what is held before the first update."""
    host: float
    """The peak of host memory."""

    @property
    def states(self) -> float:
        """The part that does not depend on the samples."""
        return self.weights + self.optimizer + self.gradients


def rank_memory(
    shape: ModelShape, config: Config, sharding: Sharding, *, shares_gpu: bool
) -> RankMemory:
    """Return the memory of a rank whose micro batches are filled with the longest samples.

    A rank of LoRA policies holds the frozen base once, with all adapters of the family. On a shared
    GPU it stays there while the engine generates, and the engine's weights leave.
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
    gradients = 0 if offload and stage == 3 else added_up
    # Temporary: the gradients of a micro batch with its activations and logits, or a second copy of
    # the gradients; or, while rank and engine of a GPU are both awake, the engine's weights.
    engine = engine_memory(shape, config).weights
    reduction = size * min(whole, BUCKET_ELEMENTS["cuda"]) + (size * part if stage == 2 else 0)
    head = shape.vocab_size * (2 * 4 * CHUNK_SIZE + 4 * shape.hidden_size * (not is_adapted))
    averaging = 0 if offload else 4 * min(masters, GATHERED_ELEMENTS if stage == 3 else whole)
    learning = reduction + max(activations(shape, config) + head, averaging)
    passing = max(learning, engine + TRANSFER_BYTES if shares_gpu else 0)
    # Trap: ZeRO-3 starts with a float32 buffer for whole gradients, although it updates in parts.
    updated = min(whole, GATHERED_ELEMENTS * policy.ranks_per_policy)
    starting = max(size * whole, size * part + optimizer + 4 * updated) if stage == 3 else 0
    # On the host: the pinned copy of what leaves a shared GPU while its engine generates, or else
    # the largest tensor of a checkpoint; the offloaded optimiser; at the start the whole model.
    waiting = [engine] if is_adapted else [size * (whole if stage < 3 else part)]
    if not offload and not is_adapted:
        waiting += [4 * masters, 4 * part, 4 * part] + ([added_up] if stage == 3 else [])
    reference = model if config.algorithm.uses_reference and not is_adapted else 0
    kept = sum(map(_pinned, waiting)) + reference if shares_gpu else 4 * part
    return RankMemory(
        weights,
        optimizer,
        gradients,
        peak=max(starting, weights + optimizer + gradients + passing),
        host=max(model, kept + (_offloaded(part, stage) if offload else 0)),
    )


def tokens_at_once(config: Config) -> int:
    """Return the tokens in the largest micro batch; no sample or pair is divided."""
    longest = config.rollout.max_model_len
    if isinstance(config.algorithm, Dpo):
        longest *= 2
    return max(longest, config.policy.micro_batch_tokens)


def layer_activations(shape: ModelShape) -> int:
    """Return the elements per token that a transformer layer keeps for its backward pass.

    Counted on Qwen2 and Qwen3 layers in bfloat16 (float32 keeps two hidden sizes less): eight
    hidden sizes, queries and keys twice (five times if normalised), four sizes of the gated MLP.
    """
    heads = (5 if shape.has_qk_norm else 2) * (shape.query_size + shape.kv_size)
    return 8 * shape.hidden_size + heads + 4 * shape.intermediate_size


def activations(shape: ModelShape, config: Config) -> float:
    layer = layer_activations(shape)
    kept = (shape.num_layers + 1) * layer
    # Each layer's input, and all activations of one layer with their gradients.
    recomputed = shape.num_layers * shape.hidden_size + 2 * layer
    tokens, budget = tokens_at_once(config), config.policy.micro_batch_tokens
    checkpointing = config.policy.gradient_checkpointing
    if checkpointing is None:
        elements = max(budget * kept, tokens * recomputed)
    else:
        elements = tokens * (recomputed if checkpointing else kept)
    return BYTES[config.policy.dtype] * elements


def _offloaded(part: float, stage: int) -> float:
    """Return the host memory of an offloaded optimiser of ``part`` parameters: float32 weights, two
    moments, and gradients twice. ZeRO-3 pins the gradients: in one buffer, and in one for each
    group of parameters that is updated at once."""
    if stage < 3:
        return 20 * part
    groups, rest = divmod(part, GATHERED_ELEMENTS)
    pinned = groups * _pinned(4 * GATHERED_ELEMENTS) + _pinned(4 * rest)
    return 12 * part + _pinned(4 * part) + pinned


def _pinned(num_bytes: float) -> int:
    """Return the size of a pinned buffer, which PyTorch rounds up to a power of two."""
    return 1 << max(int(num_bytes) - 1, 0).bit_length()


class EngineMemory(NamedTuple):
    """Bytes that a rollout engine needs on each of its GPUs."""

    weights: float
    """Weights: a shard of the model, and unsharded room for every LoRA adapter of the family, of
    the next larger rank that vLLM allows."""
    batch: float
    """Buffers for the largest batch, reserved at the start: for each token a layer's input, its
    residual and three parts of the gated MLP; for each sequence float32 logits, log-probs and a
    copy."""
    sequence: float
    """KV cache of one sequence of the maximum length."""


def engine_memory(shape: ModelShape, config: Config) -> EngineMemory:
    """Return the memory of an engine for a model of this shape."""
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
