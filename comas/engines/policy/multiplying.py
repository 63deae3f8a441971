"""How a CPU multiplies float32 matrices: by oneDNN where MKL, PyTorch's default, is slower."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel

LEAST_WIDTH = 256
"""Hidden size below which oneDNN gains nothing: it compiles a kernel for every new shape."""


def multiply_by_onednn(model: PreTrainedModel) -> None:
    """Let oneDNN multiply float32 matrices in this process, which computes ``model`` on a CPU with
    ``packed_attention``, unless it would round them to bfloat16, as it does with AMX. On an AMD CPU
    with AVX-512, MKL has less than half of its speed."""
    if model.config.get_text_config().hidden_size < LEAST_WIDTH:
        return
    factor = torch.linspace(0, 1, 256 * 256).view(256, 256)
    exact = factor.double() @ factor.double()
    torch.set_float32_matmul_precision("medium")
    error = (factor @ factor - exact).abs().max() / exact.abs().max()
    if error > 1e-5:  # 7e-7 in float32, 2e-3 in bfloat16
        torch.set_float32_matmul_precision("highest")


def by_mkl(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    """Return ``function(*tensors)``. MKL computes it, and its gradients: by oneDNN, PyTorch's
    attention on a CPU takes three times as long."""
    if torch.get_float32_matmul_precision() != "medium":
        return function(*tensors)
    result = function(*_Switch.apply("highest", "medium", *tensors))
    return _Switch.apply("medium", "highest", result)[0]


class _Switch(torch.autograd.Function):
    """Returns its tensors. What is computed next has the precision ``after`` in the forward pass,
    and ``before`` in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, after: str, before: str, *states: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        torch.set_float32_matmul_precision(after)
        ctx.before = before
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        torch.set_float32_matmul_precision(ctx.before)
        return None, None, *gradients
