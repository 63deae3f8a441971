"""Attention over samples that lie one after another in a single row."""

from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

PACKED = "packed"
"""Name of ``packed_attention`` among transformers' attention implementations."""

NOT_PLAIN = ("attn_logit_softcapping", "attention_dropout", "attn_pdrop")
"""Settings of models that make attention more than ``packed_attention`` computes."""


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None,
    cu_seq_lens_q: torch.Tensor,
    max_length_q: int,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each sample, by PyTorch's own kernels.

    Args:
        query: [1, heads, L, D]; key and value may have fewer heads, each for a group.
        attention_mask: None, as transformers makes no mask for an implementation of this name.
        cu_seq_lens_q: [B + 1], where each sample begins, and L.
        max_length_q: tokens of the longest sample. These two have the names that transformers
            gives them for FlashAttention.

    Returns the output [1, L, heads, D], and no weights.
    """
    assert attention_mask is None
    grouped = query.shape[1] != key.shape[1]
    if query.is_cuda and query.dtype != torch.float32:
        output = varlen_attn(
            *(states[0].transpose(0, 1) for states in (query, key, value)),
            cu_seq_lens_q,
            cu_seq_lens_q,
            max_length_q,
            max_length_q,
            scale=scaling,
            window_size=(-1, 0),  # causal
            enable_gqa=grouped,
        )
        return output[None], None
    lengths = cu_seq_lens_q.diff().tolist()
    samples = zip(*(states.split(lengths, dim=2) for states in (query, key, value)), strict=True)
    outputs = [
        scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=grouped)
        for q, k, v in samples
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def check_attention(model: PreTrainedModel) -> None:
    """Refuse a model whose samples would not be kept apart in one row.

    Raises:
        ValueError: its attention is not plain causal attention over all earlier tokens.
    """
    config = model.config
    layer_types = getattr(config, "layer_types", None)
    faults = [f"{key} = {getattr(config, key)}" for key in NOT_PLAIN if getattr(config, key, None)]
    if layer_types is not None and set(layer_types) != {"full_attention"}:
        faults.append(f"layer_types = {sorted(set(layer_types))}")
    if layer_types is None and getattr(config, "sliding_window", None) is not None:
        faults.append(f"sliding_window = {config.sliding_window}")
    if not model.is_backend_compatible() or model._is_stateful:
        faults.append(f"model_type = {config.model_type}")
    if faults:
        raise ValueError(
            f"society.models: {config.name_or_path} sets {', '.join(faults)}; only models with "
            "plain causal attention in every layer can be trained, choose one of those"
        )


AttentionInterface.register(PACKED, packed_attention)
