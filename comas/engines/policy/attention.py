"""Attention over samples packed into a single row."""

import inspect
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from comas.engines.policy.multiplying import Precision

PACKED = "packed"
"""The name under which transformers finds ``packed_attention``."""


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None,
    cu_seq_lens_q: torch.Tensor,
    cu_seq_lens_k: torch.Tensor,
    max_length_q: int,
    max_length_k: int,
    key_places: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each sample, by PyTorch's own kernels: query [1, heads, L, D] (of key
    and value there may be fewer heads), output [1, L, heads, D]. ``cu_seq_lens_q`` and
    ``max_length_q`` are as for FlashAttention, ``key_places`` as in ``MicroBatch``."""
    assert attention_mask is None
    if key_places is not None:
        key, value = (states.index_select(2, key_places) for states in (key, value))
    group_size = query.shape[1] // key.shape[1]
    if query.is_cuda and query.dtype != torch.float32:
        query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
        options = {}
        if group_size > 1 and "enable_gqa" in inspect.signature(varlen_attn).parameters:
            options["enable_gqa"] = True
        elif group_size > 1:  # before torch 2.12
            key, value = (states.repeat_interleave(group_size, dim=1) for states in (key, value))
        output = varlen_attn(
            *(query, key, value, cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k),
            scale=scaling,
            window_size=(-1, 0),  # causal, aligned at the last query and key
            **options,
        )
        return output[None], None
    outside = torch.get_float32_matmul_precision()
    inside = "highest" if outside == "medium" else outside  # oneDNN takes three times as long
    query, key, value = Precision.apply(inside, outside, query, key, value)
    shares_heads = group_size > 1 and not query.is_cuda
    if group_size > 1 and query.is_cuda:  # there, all scores of grouped heads would be held at once
        key, value = (states.repeat_interleave(group_size, dim=1) for states in (key, value))
    lengths, key_lengths = cu_seq_lens_q.diff().tolist(), cu_seq_lens_k.diff().tolist()
    parts = (query.split(lengths, 2), key.split(key_lengths, 2), value.split(key_lengths, 2))
    outputs = []
    for q, k, v in zip(*parts, strict=True):
        num_before = k.shape[2] - q.shape[2]
        mask = q.new_ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(num_before)
        masking: dict[str, Any] = {"attn_mask": mask} if num_before else {"is_causal": True}
        outputs.append(
            scaled_dot_product_attention(q, k, v, scale=scaling, enable_gqa=shares_heads, **masking)
        )
    [output] = Precision.apply(outside, inside, torch.cat(outputs, dim=2))
    return output.transpose(1, 2), None


AttentionInterface.register(PACKED, packed_attention)
