"""The sizes of a model that decide how much memory it takes, from its configuration alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from comas.config.paths import REPOSITORY
from comas.config.schema import Config
from comas.utils.model_folder import description_of, without_weights

if TYPE_CHECKING:
    from transformers import PretrainedConfig

SHIPPED_SHAPES = REPOSITORY / "configs/models"
"""Configurations of Qwen models, for their shapes before the models are downloaded."""


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a causal language model."""

    num_parameters: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    kv_size: int
    """Key heads times head size."""
    vocab_size: int


def model_shape(model: str) -> ModelShape:
    """Return the shape of a model (folder or hub name) from its config.json, or from the one that
    is shipped in ``configs/models/``. Raises what ``without_weights`` does."""
    shipped = SHIPPED_SHAPES / model.removeprefix("Qwen/")
    modules = without_weights(str(shipped if is_shipped(model) else description_of(model)))
    text = modules.config.get_text_config()
    return ModelShape(
        num_parameters=sum(parameter.numel() for parameter in modules.parameters()),
        num_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        intermediate_size=_intermediate_size(text),
        kv_size=max(map(_kv_size, text.per_layer_config)),
        vocab_size=text.vocab_size,
    )


def _kv_size(layer: "PretrainedConfig") -> int:
    """Return key heads times head size of a layer; 0 if it has no attention."""
    heads = getattr(layer, "num_attention_heads", None) or 0
    key_heads = getattr(layer, "num_key_value_heads", None) or heads
    return key_heads * head_size_of(layer) if heads else 0


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


def is_shipped(model: str) -> bool:
    """Return whether ``model`` is a hub name whose shape is in ``configs/models/``."""
    shipped = SHIPPED_SHAPES / model.removeprefix("Qwen/")
    return model.startswith("Qwen/") and shipped.is_dir() and not Path(model).is_dir()


def head_size_of(config: "PretrainedConfig") -> int:
    """Return the size of an attention head of the text model."""
    text = config.get_text_config()
    return getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads


def trained_parameters(shape: ModelShape, config: Config) -> int:
    """Return the trained parameters of a policy: all of the model's, or those of one LoRA adapter
    of all linear layers (an upper bound for any ``policy.lora.target_modules``).

    Example: rank 16 on Qwen2.5-3B (36 layers, 2048, 11008, keys 256) are 16 x (4 x 2048 +
    2 x 2304 + 3 x 13056) a layer, 30 million in all.
    """
    if config.policy.lora.rank is None:
        return shape.num_parameters
    hidden, inner, keys = shape.hidden_size, shape.intermediate_size, shape.kv_size
    ends = 4 * hidden + 2 * (hidden + keys) + 3 * (hidden + inner)
    return config.policy.lora.rank * shape.num_layers * ends
