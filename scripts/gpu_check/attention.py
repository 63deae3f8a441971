"""The policies' attention on this device, against plain attention in float64."""

from __future__ import annotations

import torch

from comas.engines.policy import attention
from comas.types import Device

LENGTHS = (1, 300, 77, 128)
NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE = 8, 2, 64
MAX_ERROR = {"cuda": 0.02, "cpu": 1e-5}
"""In bfloat16 and in float32."""


def attention_error(device: Device) -> float:
    """How far ``packed_attention`` is off, with grouped heads and samples of several lengths: the
    largest relative error (by norms) of its output and of its three gradients."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    heads = (NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS)
    states = [torch.randn(1, n, sum(LENGTHS), HEAD_SIZE, device=device, dtype=dtype) for n in heads]
    weight = torch.randn(1, sum(LENGTHS), NUM_HEADS, HEAD_SIZE, device=device, dtype=dtype)
    ends = torch.tensor((0, *LENGTHS)).cumsum(0).to(device, torch.int32)
    inputs = [own.requires_grad_() for own in states]
    output, _ = attention.packed_attention(
        torch.nn.Module(),
        inputs[0],
        inputs[1],
        inputs[2],
        None,
        scaling=None,
        cu_seq_lens_q=ends,
        max_length_q=max(LENGTHS),
    )
    gradients = torch.autograd.grad((output * weight).sum(), inputs)
    exact = [own.detach().cpu().double().requires_grad_() for own in states]
    exact_output = plain_attention(*exact)
    exact_gradients = torch.autograd.grad((exact_output * weight.cpu()).sum(), exact)
    found = [own.detach().cpu().double() for own in (output, *gradients)]
    pairs = zip(found, (exact_output.detach(), *exact_gradients), strict=True)
    return max(float((own - true).norm() / true.norm()) for own, true in pairs)


def plain_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Each token sees itself and what comes before it in its sample: [1, L, heads, D]."""
    group = query.shape[1] // key.shape[1]
    key, value = (states.repeat_interleave(group, dim=1) for states in (key, value))
    sample = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))
    seen = (sample[:, None] == sample[None, :]).tril()
    scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
    weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    return (weights @ value).transpose(1, 2)
