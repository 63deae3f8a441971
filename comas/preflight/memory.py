"""How much memory an update needs: arithmetic, on nothing but a model's shape and the settings.

What DeepSpeed holds is read from its sources (0.19.8, ``deepspeed/runtime/zero``); what a layer
keeps for its backward pass was counted with ``torch.autograd.graph.saved_tensors_hooks``.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from safetensors import safe_open

from comas.config.schema import Config
from comas.engines.policy.deepspeed_options import BUCKET_ELEMENTS
from comas.engines.rollout.vllm_options import gpu_batched_tokens, lora_room
from comas.policy_optimization.logprobs import CHUNK_SIZE
from comas.utils.model_folder import description_of, without_weights

if TYPE_CHECKING:
    from transformers import PretrainedConfig

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MIB = 1 << 20
GIB = 1 << 30
GATHERED_ELEMENTS = 1_000_000_000
"""Weights that ZeRO-3 keeps gathered (``stage3_max_live_parameters``), and those that it updates
at once (``sub_group_size``)."""
TRANSFER_BYTES = GIB
"""Weights on their way to a rollout engine (vLLM's packed buffer)."""


class Sharding(NamedTuple):
    """How a policy's states are divided: ``policy.zero_stage`` and ``policy.adam_offload``."""

    zero_stage: int
    adam_offload: bool


@dataclass(frozen=True)
class ModelShape:
    """The numbers of a causal language model that decide how much memory it needs."""

    num_parameters: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    kv_size: int
    """Key heads times head size."""
    vocab_size: int
    shardable: int = 1
    """What the GPUs of a rollout engine have to divide: the greatest common divisor of its heads,
    key heads and ``intermediate_size``."""


@dataclass(frozen=True)
class RankMemory:
    """Bytes that one rank of a policy needs of its GPU (on CPU: of the host), and of the host.

    Example: Qwen2.5-3B (3.09e9 parameters) in bfloat16 under ZeRO-2 on 2 ranks, nothing
    offloaded: weights 2 x 3.09 = 6.2 GB, optimiser 12 x 3.09 / 2 = 18.5 GB, gradients
    4 x 3.09 / 2 = 6.2 GB; 31 GB together.
    """

    weights: float
    """Weights of the model, and of the reference model where there is a KL penalty."""
    optimizer: float
    """Adam's two moments, and the float32 weights that ZeRO keeps beside the model's."""
    gradients: float
    """Added up over the micro batches of an optimiser step."""
    reduction: float
    """The gradients of one micro batch, until the ranks have added them up."""
    averaging: float
    """A second copy of the gradients, at a time when there are no activations."""
    activations: float
    head: float
    """Logits of a chunk of tokens, and the gradient of the head."""
    syncing: float
    """The rollout engine's weights, when both sides of a shared GPU are awake."""
    offloaded: float
    """Host memory of an optimiser that stays there."""
    waiting: float
    """Host memory for what leaves a shared GPU while the rollout engine generates."""
    checkpoint: float
    """Host memory for the copy that a checkpoint is written from: this rank's part of what all
    ranks of the policy save."""
    starting: float
    """The most of a GPU before the first update: the model as it is loaded, or, under ZeRO-3, the
    whole gradients of all that a rank updates at once, in float32, beside its states."""
    loading: float
    """Host memory of the whole model, which every rank reads before anything is divided."""

    @property
    def states(self) -> float:
        """What does not depend on the samples."""
        return self.weights + self.optimizer + self.gradients

    @property
    def peak(self) -> float:
        """The most that is needed at any one time."""
        passing = max(self.activations + self.head, self.averaging)
        return max(self.starting, self.states + max(self.reduction + passing, self.syncing))

    @property
    def host(self) -> float:
        """The most host memory at any one time, beside the GPU."""
        return max(self.loading, self.offloaded + self.waiting + self.checkpoint)


def rank_memory(
    shape: ModelShape, config: Config, sharding: Sharding, *, shares_gpu: bool
) -> RankMemory:
    """What a rank needs when its longest samples fill its micro batches."""
    if config.policy.lora.rank is not None:
        return _adapters_memory(shape, config, sharding, shares_gpu=shares_gpu)
    stage, offload = sharding
    policy, size = config.policy, BYTES[config.policy.dtype]
    whole = shape.num_parameters
    part = whole / (policy.ranks_per_policy if stage > 0 else 1)
    # Without ZeRO in float32 the weights are their own float32 copy.
    masters = 0 if stage == 0 and policy.dtype == "float32" else part
    weights = size * whole if stage < 3 else size * (part + min(whole, GATHERED_ELEMENTS))
    gradients = size * whole if stage < 2 else 4 * part
    resident = 0 if offload else 4 * masters + 8 * part
    bucket = size * min(whole, BUCKET_ELEMENTS["cuda"])
    # Under ZeRO-3 the float32 weights are saved alone.
    saved = (size * whole if stage < 3 else 0) + (4 * whole if masters else 0) + 8 * whole
    # Trap: ZeRO-3 makes this buffer of whole gradients, although it updates its parts alone.
    updated = min(whole, GATHERED_ELEMENTS * policy.ranks_per_policy)
    waiting = [size * (whole if stage < 3 else part)]
    if not offload:
        waiting += [4 * masters, 4 * part, 4 * part] + ([gradients] if stage == 3 else [])
    return RankMemory(
        weights=weights + (size * whole if config.optimization.kl_coef > 0 else 0),
        optimizer=resident,
        gradients=0 if offload and stage > 1 else gradients,
        reduction=bucket + (size * part if stage == 2 else 0),
        averaging=0 if offload else 4 * min(masters, GATHERED_ELEMENTS if stage == 3 else whole),
        activations=_activations(shape, config),
        head=shape.vocab_size * (2 * 4 * CHUNK_SIZE + 4 * shape.hidden_size),
        syncing=engine_shard_bytes(shape, config) + TRANSFER_BYTES if shares_gpu else 0,
        offloaded=_offloaded(part, stage) if offload else 0,
        waiting=sum(map(_pinned, waiting)) if shares_gpu else 0,
        checkpoint=saved / policy.ranks_per_policy,
        starting=max(size * whole, size * part + resident + 4 * updated) if stage == 3 else 0,
        loading=size * whole,
    )


def _adapters_memory(
    shape: ModelShape, config: Config, sharding: Sharding, *, shares_gpu: bool
) -> RankMemory:
    """A rank's memory with LoRA: the base once, without gradients and optimiser, and each
    adapter with both. On a GPU that is shared with the rollout engine nothing leaves it."""
    stage, offload = sharding
    size, adapter = BYTES[config.policy.dtype], adapter_parameters(shape, config)
    shard = engine_shard_bytes(shape, config)
    whole = adapter * max(len(family) for family in config.trained_families)
    part = whole / (config.policy.ranks_per_policy if stage > 0 else 1)
    masters = 0 if stage == 0 and config.policy.dtype == "float32" else 4 * part
    states = masters + 8 * part
    return RankMemory(
        weights=size * (shape.num_parameters + whole),
        optimizer=0 if offload else states,
        gradients=0 if offload and stage > 1 else size * adapter + 4 * part,
        reduction=size * min(adapter, BUCKET_ELEMENTS["cuda"]),
        averaging=4 * adapter,
        activations=_activations(shape, config),
        # The output layer has no gradient.
        head=shape.vocab_size * 2 * 4 * CHUNK_SIZE,
        syncing=shard if shares_gpu else 0,
        offloaded=20 * part if offload else 0,
        # The rollout engine's base model, while it sleeps.
        waiting=_pinned(shard) if shares_gpu else 0,
        checkpoint=(size * whole + 12 * whole) / config.policy.ranks_per_policy,
        starting=0,
        loading=size * shape.num_parameters,
    )


def adapter_parameters(shape: ModelShape, config: Config) -> int:
    """Parameters of one LoRA adapter of all linear layers, which is the most that
    ``policy.lora.target_modules`` can ask for.

    Example: rank 16 on Qwen2.5-3B (36 layers, 2048, 11008, keys 256) are 16 x (4 x 2048 +
    2 x 2304 + 3 x 13056) a layer, 30 million in all.
    """
    assert config.policy.lora.rank is not None
    hidden, inner, keys = shape.hidden_size, shape.intermediate_size, shape.kv_size
    ends = 4 * hidden + 2 * (hidden + keys) + 3 * (hidden + inner)
    return config.policy.lora.rank * shape.num_layers * ends


def in_words(num_bytes: float) -> str:
    """``1.5 * GIB -> "1.5 GiB"``, and less than a tenth of one in MiB."""
    if num_bytes < GIB / 10:
        return f"{num_bytes / MIB:.0f} MiB"
    return f"{num_bytes / GIB:.1f} GiB"


def engine_shard_bytes(shape: ModelShape, config: Config) -> float:
    """Weights of a rollout engine on each of its GPUs: 6.2 GB of Qwen2.5-3B in bfloat16, 3.1 with
    ``rollout.tensor_parallel=2``."""
    rollout = config.rollout
    return BYTES[rollout.dtype] * shape.num_parameters / rollout.tensor_parallel


def engine_weight_bytes(shape: ModelShape, config: Config) -> float:
    """Weights in a rollout engine on a GPU: its shard of the model, and of LoRA policies room for
    every adapter of the family, of the next rank that vLLM makes room for (as if none were
    sharded)."""
    shard, rank = engine_shard_bytes(shape, config), config.policy.lora.rank
    if rank is None:
        return shard
    adapter = adapter_parameters(shape, config) // rank * lora_room(rank)
    return shard + BYTES[config.rollout.dtype] * adapter * max(map(len, config.families))


def kv_room_bytes(shape: ModelShape, config: Config, *, gpu_bytes: float) -> float:
    """What is left of a rollout engine's share of a GPU for its KV cache; below 0: nothing is.

    Example: 0.6 of 79 GiB are 50.9 GB; Qwen2.5-3B leaves 50.9 - 6.2 - 1.1 = 43.6 GB.
    """
    given = config.rollout.gpu_memory_utilization * gpu_bytes
    return given - engine_weight_bytes(shape, config) - engine_batch_bytes(shape, config)


def kv_cache_bytes(shape: ModelShape, config: Config) -> float:
    """KV cache of one sequence of the greatest length on each GPU of its engine: keys and values of
    every layer and token, of the GPU's part of the heads."""
    rollout = config.rollout
    tokens = rollout.max_prompt_tokens + rollout.max_response_tokens
    whole = 2 * shape.num_layers * shape.kv_size * BYTES[rollout.dtype] * tokens
    return whole / rollout.tensor_parallel


def engine_batch_bytes(shape: ModelShape, config: Config) -> float:
    """Memory for what passes through a rollout engine on a GPU at once, set aside as it starts:
    of each token the input of a layer beside its residual, the gated MLP's three parts (the GPU's
    shard of them); of each sequence the logits in float32, their log-probs, and a copy.
    """
    rollout = config.rollout
    tokens = gpu_batched_tokens(
        max_model_len=rollout.max_prompt_tokens + rollout.max_response_tokens,
        max_num_seqs=rollout.max_num_seqs,
    )
    layer = 2 * shape.hidden_size + 3 * shape.intermediate_size / rollout.tensor_parallel
    logits = 3 * 4 * rollout.max_num_seqs * shape.vocab_size
    return tokens * layer * BYTES[rollout.dtype] + logits


def tokens_at_once(config: Config) -> int:
    """Tokens in the largest micro batch: a sample is never divided, nor is a pair."""
    longest = config.rollout.max_prompt_tokens + config.rollout.max_response_tokens
    if config.optimization.loss == "dpo":
        longest *= 2
    if config.policy.micro_batch_tokens is not None:
        return max(longest, config.policy.micro_batch_tokens)
    return longest * (config.policy.micro_batch_size or 1)


def model_shape(model: str) -> ModelShape:
    """Read the shape of a model (folder or hub name) from its config.json, without its weights.

    Raises what ``without_weights`` does.
    """
    modules = without_weights(model)
    text = modules.config.get_text_config()
    kv_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    intermediate_size = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    return ModelShape(
        num_parameters=sum(parameter.numel() for parameter in modules.parameters()),
        num_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        intermediate_size=intermediate_size,
        kv_size=kv_heads * head_size_of(modules.config),
        vocab_size=text.vocab_size,
        shardable=math.gcd(text.num_attention_heads, kv_heads, intermediate_size),
    )


def head_size_of(config: "PretrainedConfig") -> int:
    """Size of an attention head, in the part of a model that reads text."""
    text = config.get_text_config()
    return getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads


def num_parameters(model: str) -> int:
    """Parameters of a model: in a folder, counted in the heads of its files; of a hub name, by its
    config.json.

    Raises ValueError when the hub has no such model, or cannot be reached.
    """
    if not Path(model).is_dir():
        return model_shape(str(description_of(model))).num_parameters
    total = 0
    for path in Path(model).glob("*.safetensors"):
        with safe_open(path, framework="np") as weights:
            names = list(weights.keys())
            total += sum(math.prod(weights.get_slice(name).get_shape()) for name in names)
    return total


def layer_activations(shape: ModelShape) -> int:
    """Elements that a transformer layer keeps of each token for its backward pass.

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
    """Host memory of an offloaded optimiser with ``part`` of the parameters: float32 weights, two
    moments, and gradients twice. Under ZeRO-3 these are pinned: in one buffer, and in one for each
    group of parameters that is updated at once."""
    if stage < 3:
        return 20 * part
    groups, rest = divmod(part, GATHERED_ELEMENTS)
    of_groups = groups * _pinned(4 * GATHERED_ELEMENTS) + _pinned(4 * rest)
    return 12 * part + _pinned(4 * part) + of_groups


def _pinned(num_bytes: float) -> int:
    """Host memory of a buffer as PyTorch pins it: rounded up to a power of two."""
    return 1 << max(int(num_bytes) - 1, 0).bit_length()
