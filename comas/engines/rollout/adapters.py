"""LoRA adapters of a rollout engine: vLLM's own, loaded from tensors instead of files."""

from collections.abc import Mapping
from typing import Any

import torch
from vllm.lora.lora_model import LoRAModel
from vllm.lora.peft_helper import PEFTHelper
from vllm.lora.request import LoRARequest

from comas.config.schema import Lora
from comas.engines.rollout.cpu.lora import DenseAdapters


def adapter_request(policy: int) -> LoRARequest:
    """Return vLLM's request for the adapter of ``policy``. vLLM counts adapters from 1, separates
    their prefix-cache entries by name, and would load unknown ones from the path."""
    return LoRARequest(f"policy {policy}", policy + 1, "(in memory)")


def load_adapter(
    worker: Any, *, policy: int, weights: Mapping[str, torch.Tensor], lora: Lora
) -> None:
    """Make vLLM's ``worker`` serve ``weights``, under PEFT's names, as the adapter of ``policy``.
    Raises ValueError when the model lacks adapted layers."""
    manager = worker.model_runner.lora_manager
    layers = manager._adapter_manager
    mapper = getattr(layers.model, "hf_to_vllm_mapper", None)
    # The second name is vLLM 0.26's.
    renamed = getattr(mapper, "get_rename_mapper", getattr(mapper, "get_unstacked_mapper", None))
    assert lora.rank is not None
    adapter = LoRAModel.from_lora_tensors(
        policy + 1,
        # vLLM scales them in place.
        {name: weight.clone() for name, weight in weights.items()},
        PEFTHelper(r=lora.rank, lora_alpha=lora.alpha, target_modules=[]),  # type: ignore[arg-type]
        device="cpu",
        dtype=manager.lora_config.lora_dtype,
        weights_mapper=None if renamed is None else renamed(),
    )
    layers.remove_adapter(adapter.id)
    layers.add_adapter(adapter)
    if missing := adapter.loras.keys() - layers.modules.keys():
        raise ValueError(f"vLLM's model has no layers {', '.join(sorted(missing))} to adapt")
    layers.activate_adapter(adapter.id)
    for punica in layers.punica_wrapper_mapping.values():
        if isinstance(punica, DenseAdapters):
            punica.forget_layers()
