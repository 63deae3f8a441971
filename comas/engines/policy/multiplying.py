"""How a CPU multiplies float32 matrices: by oneDNN where MKL, PyTorch's default, is slower."""

from typing import Any

import torch
from transformers import PreTrainedModel


def multiply_by_onednn(model: PreTrainedModel) -> None:
    """Let oneDNN multiply float32 matrices in this process, which computes ``model`` on a CPU with
    ``packed_attention``, unless it would round them to bfloat16, as it does with AMX. On an AMD CPU
    with AVX-512, MKL has less than half of its speed."""
    if model.config.get_text_config().hidden_size < 256:
        return  # nothing is gained: oneDNN compiles a kernel for every new shape
    factor = torch.linspace(0, 1, 256 * 256).view(256, 256)
    exact = factor.double() @ factor.double()
    torch.set_float32_matmul_precision("medium")
    if not torch.allclose(factor @ factor, exact.float(), rtol=1e-5):
        torch.set_float32_matmul_precision("highest")


class Precision(torch.autograd.Function):
    """Sets the precision of what is computed next: ``after``, ``before`` in the backward pass."""

    @staticmethod
    def forward(ctx: Any, after: str, before: str, *states: torch.Tensor) -> Any:
        torch.set_float32_matmul_precision(after)
        ctx.before = before
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        torch.set_float32_matmul_precision(ctx.before)
        return None, None, *gradients
