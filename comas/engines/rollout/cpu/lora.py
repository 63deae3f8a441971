"""LoRA on the CPU: the adapters of a batch as two dense products, where vLLM gathers weights.

vLLM copies the matrices of its adapter for every token and multiplies each token by its own copy.
Here every token meets the first matrices of all adapters at once, the results that are not its own
adapter's become 0, and the second matrices take those.
"""

from typing import Any, NamedTuple

import torch
from vllm import _custom_ops
from vllm.lora.punica_wrapper import punica_cpu
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

_NUM_KERNELS = 32
"""Kernels kept for each product, one for each number of tokens; as many as vLLM keeps."""


def use_dense_products() -> None:
    """From now on an engine in this process that has adapters computes them as above.

    A token without an adapter gets nothing added; in vLLM's kernels for the CPU it gets the last
    adapter, if another token of the batch has one.
    """
    # vLLM finds it there by its name, whenever it loads a model.
    punica_cpu.PunicaWrapperCPU = DenseAdapters


class StackedLayer(NamedTuple):
    """The adapters of a layer as oneDNN takes them, whose results, unlike those of PyTorch's
    products, do not depend on what else is in the batch; s slots of rank r."""

    first: _custom_ops.CPUDNNLGEMMHandler
    """A of all parts of the layer, [inputs, parts x s x r]."""
    second: list[_custom_ops.CPUDNNLGEMMHandler]
    """B of each part, [s x r, outputs]."""


class DenseAdapters(PunicaWrapperCPU):
    """vLLM's interface to the adapters of each layer."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._layers: dict[int, StackedLayer] = {}

    def forget_layers(self) -> None:
        """Read the adapters' weights again, which have changed."""
        self._layers.clear()

    def add_lora_linear(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: tuple[torch.Tensor, ...],
        lora_b_stacked: tuple[torch.Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        **others: Any,
    ) -> None:
        """Add to ``y`` [T, outputs] what the adapters of the tokens make of ``x`` [T, inputs].

        A layer has parts, such as q, k and v: ``lora_a_stacked`` holds [s, 1, r, inputs] of each,
        ``lora_b_stacked`` [s, 1, outputs of the part, r]. vLLM has put the scale into B.
        """
        assert scale == 1.0
        if self.no_lora:
            return
        key = lora_a_stacked[0].data_ptr()
        if key not in self._layers:
            self._layers[key] = stack_layer(lora_a_stacked, lora_b_stacked)
        layer = self._layers[key]
        num_slots = len(lora_a_stacked[0])
        inner = _custom_ops.onednn_mm(layer.first, x, None).view(
            len(x), len(layer.second), num_slots, -1
        )
        # [T, 1, s, 1]: 1 at the slot of the token's adapter; nowhere if it has none.
        owners = self.token_lora_indices[:, None] == torch.arange(num_slots)
        inner *= owners.to(x.dtype)[:, None, :, None]
        start = 0
        for part, (weight, size) in enumerate(zip(layer.second, output_slices, strict=True)):
            weighted = inner[:, part].flatten(1)
            y[:, start : start + size] += _custom_ops.onednn_mm(weight, weighted, None)
            start += size


def stack_layer(
    lora_a_stacked: tuple[torch.Tensor, ...], lora_b_stacked: tuple[torch.Tensor, ...]
) -> StackedLayer:
    """Lay the adapters of a layer side by side."""
    first = torch.cat([a.flatten(0, 2) for a in lora_a_stacked])
    second = [b[:, 0].transpose(0, 1).flatten(1) for b in lora_b_stacked]
    return StackedLayer(_packed(first), [_packed(weight) for weight in second])


def _packed(weight: torch.Tensor) -> _custom_ops.CPUDNNLGEMMHandler:
    """``weight`` [outputs, inputs] as oneDNN takes it."""
    return _custom_ops.create_onednn_mm(weight.contiguous().t(), _NUM_KERNELS)
