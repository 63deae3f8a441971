"""Measurements: operations, memory, accuracy of attention."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from comas.types import Device, TrainingSample

if TYPE_CHECKING:
    from comas.preflight.memory import ModelShape

Result = TypeVar("Result")
LENGTHS = (1, 300, 77, 128)
NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE = 8, 2, 64
MAX_ERROR = {"cuda": 0.02, "cpu": 1e-5}
"""In bfloat16 and in float32."""
MATRIX_SIZES = {"cuda": 8192, "cpu": 1024}


def model_flops(shape: ModelShape, samples: Sequence[TrainingSample]) -> float:
    """Return the floating-point operations of an update: 6 per weight and token (2 forward, 4
    backward; the tied head only for response tokens), and in every layer 6 per hidden unit and pair
    of tokens. Recomputed activations do not count.

    Example: 10 weights beside the head's 2 x 3, one layer, a prompt of 1 token and a response of
    1: 6 * 10 * 2 + 6 * 6 * 1 + 6 * 1 * 3 * 2^2 = 228.
    """
    head = shape.vocab_size * shape.hidden_size
    total = 0.0
    for sample in samples:
        num_response = len(sample.response_token_ids)
        num_tokens = len(sample.prompt_token_ids) + num_response
        total += 6 * (shape.num_parameters - head) * num_tokens + 6 * head * num_response
        total += 6 * shape.num_layers * shape.query_size * num_tokens**2
    return total


def isolated(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call ``function`` in its own process, which releases its GPU memory."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def matrix_flops(device: Device) -> float:
    """Return the operations per second of a matrix product, on one thread of a CPU."""
    import torch

    torch.set_num_threads(1)
    size = MATRIX_SIZES[device]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    matrix = torch.randn(size, size, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(10):
        started = time.perf_counter()
        (matrix @ matrix)[0, 0].item()  # synchronises
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def gpu_bytes(device: Device) -> int:
    """Return the memory in use on the fullest visible GPU; 0 on a CPU."""
    if device == "cpu":
        return 0
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    if usable := os.environ.get("CUDA_VISIBLE_DEVICES"):
        query.append(f"--id={usable}")
    used = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    return max(int(line) for line in used.splitlines()) << 20


def attention_error(device: Device) -> float:
    """Return the largest relative error (by norms) of ``packed_attention``'s output and three
    gradients, with grouped heads and samples of several lengths, which all attend to the first."""
    import torch

    from comas.engines.policy import attention

    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    heads = (NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS)
    states = [torch.randn(1, n, sum(LENGTHS), HEAD_SIZE, device=device, dtype=dtype) for n in heads]
    weight = torch.randn(1, sum(LENGTHS), NUM_HEADS, HEAD_SIZE, device=device, dtype=dtype)
    first, *others = torch.arange(sum(LENGTHS)).split(LENGTHS)
    places = [first, *(torch.cat([first, other]) for other in others)]
    key_lengths = [len(part) for part in places]
    ends, key_ends = (
        torch.tensor((0, *lengths)).cumsum(0).to(device, torch.int32)
        for lengths in (LENGTHS, key_lengths)
    )
    inputs = [state.requires_grad_() for state in states]
    output, _ = attention.packed_attention(
        torch.nn.Module(),
        inputs[0],
        inputs[1],
        inputs[2],
        None,
        scaling=None,
        cu_seq_lens_q=ends,
        cu_seq_lens_k=key_ends,
        max_length_q=max(LENGTHS),
        max_length_k=max(key_lengths),
        key_places=torch.cat(places).to(device),
    )
    gradients = torch.autograd.grad((output * weight).sum(), inputs)
    exact = [state.detach().cpu().double().requires_grad_() for state in states]
    attend = torch.nn.functional.scaled_dot_product_attention
    each = [  # of the first sample with this one
        attend(*(state[:, :, part] for state in exact), is_causal=True, enable_gqa=True)
        for part in places
    ]
    parts = zip(each, LENGTHS, strict=True)
    exact_output = torch.cat([out[:, :, -num:] for out, num in parts], dim=2).transpose(1, 2)
    exact_gradients = torch.autograd.grad((exact_output * weight.cpu()).sum(), exact)
    found = [result.detach().cpu().double() for result in (output, *gradients)]
    pairs = zip(found, (exact_output.detach(), *exact_gradients), strict=True)
    return max(float((result - true).norm() / true.norm()) for result, true in pairs)
