"""LoRA on the CPU: two dense products for all adapters of a batch.

vLLM copies its adapter's matrices for every token. Here all tokens are multiplied by the A of all
adapters at once, results of other adapters than the token's own are set to 0, and B follows.
"""

from typing import Any, NamedTuple

import torch
from vllm import _custom_ops
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

_NUM_KERNELS = 32
"""Kernels cached for each product, one per number of tokens; as many as in vLLM."""


class StackedLayer(NamedTuple):
    """The adapters of a layer, s slots of rank r, for oneDNN, whose results (unlike those of
    PyTorch's products) do not depend on the rest of the batch."""

    first: _custom_ops.CPUDNNLGEMMHandler
    """A of all parts of the layer, [inputs, parts x s x r]."""
    second: list[_custom_ops.CPUDNNLGEMMHandler]
    """B of each part, [s x r, outputs]."""


class DenseAdapters(PunicaWrapperCPU):
    """vLLM's interface to adapters. Tokens without an adapter stay unchanged; vLLM's CPU kernels
    would apply the last adapter to them if another token of the batch has one."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._layers: dict[int, StackedLayer] = {}

    def forget_layers(self) -> None:
        """Read the adapters' weights again after a change."""
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
        """Add the adapters' outputs for ``x`` [T, inputs] to ``y`` [T, outputs].

        A layer has parts, such as q, k and v, each with [s, 1, r, inputs] in ``lora_a_stacked`` and
        [s, 1, outputs of the part, r] in ``lora_b_stacked``. vLLM has put the scale into B.
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
        # [T, 1, s, 1]: 1 at the slot of the token's adapter, if any.
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
    """Concatenate the adapters of a layer."""
    first = torch.cat([a.flatten(0, 2) for a in lora_a_stacked])
    second = [b[:, 0].transpose(0, 1).flatten(1) for b in lora_b_stacked]
    return StackedLayer(_packed(first), [_packed(weight) for weight in second])


def _packed(weight: torch.Tensor) -> _custom_ops.CPUDNNLGEMMHandler:
    """Return ``weight`` [outputs, inputs] in oneDNN's layout."""
    return _custom_ops.create_onednn_mm(weight.contiguous().t(), _NUM_KERNELS)
