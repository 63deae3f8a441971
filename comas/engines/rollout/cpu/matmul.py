"""Matrix products on CPU in few heights, as vLLM builds a kernel for every height it meets.

oneDNN compiles each, which takes 0.4 to 1 ms and 0.5 MiB, where the product itself takes 0.01 to
0.1 ms in a tiny model; vLLM keeps the latest 32 of each shape of weights. A step's height is its
number of tokens, and hardly any two steps with a new prompt in them are equal.
"""

import torch
from vllm import _custom_ops

_multiply = _custom_ops.onednn_mm

CACHED_HEIGHTS = 32
"""Kernels that vLLM keeps for each shape of weights."""
_FINEST = 16
"""Rows: powers of two up to here, then steps of this, then of an eighth to a quarter."""


def use_few_heights() -> None:
    """From now on pad every product in this process to one of few heights."""
    _custom_ops.onednn_mm = multiply


def multiply(
    weights: _custom_ops.CPUDNNLGEMMHandler, inputs: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """The result of ``onednn_mm``, computed from inputs padded with rows of zeros."""
    rows = inputs.reshape(-1, weights.k)
    num_rows = len(rows)
    missing = padded_height(num_rows) - num_rows
    padded = torch.constant_pad_nd(rows, (0, 0, 0, missing))
    return _multiply(weights, padded, bias)[:num_rows].reshape(*inputs.shape[:-1], weights.n)


def padded_height(num_rows: int) -> int:
    """The next of 1, 2, 4, 8, 16, 32, 48, 64, 80, ..., 128, 160, ..., 256, 320, ..., 512, 640, ...

    Up to 4,096 these are as many as vLLM keeps. Example: 130 rows become 160.
    """
    power = 1 << (num_rows - 1).bit_length()  # the next power of two
    if power <= _FINEST:
        return power
    step = max(_FINEST, power // 8)
    return -(-num_rows // step) * step
