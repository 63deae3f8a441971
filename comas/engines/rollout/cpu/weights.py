"""New weights for a vLLM worker on a CPU."""

from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader.reload.layerwise import (
    finalize_layerwise_reload,
    get_layerwise_info,
    initialize_layerwise_reload,
)

from comas.utils.processes import return_free_memory


def check_layers(worker: Any) -> None:
    """Raise ValueError if the model of vLLM's ``worker`` has layers whose weights vLLM transforms
    in unknown ways, such as mixtures of experts."""
    unknown = [
        name
        for name, layer in worker.model_runner.get_model().named_modules()
        if isinstance(getattr(layer, "quant_method", None), QuantizeMethodBase)
        and not isinstance(layer, LinearBase | VocabParallelEmbedding)
    ]
    if unknown:
        raise ValueError(
            f"society.models: {len(unknown)} layers, first {unknown[0]}, are neither linear nor "
            "embeddings; on a CPU such models (mixtures of experts) cannot be updated: choose "
            "another, or use GPUs"
        )


def load_weights(worker: Any, *, path: str) -> None:
    """Make vLLM's ``worker`` serve the weights in the file ``path`` (Hugging Face name -> whole
    tensor). Its layers hold packed weights, so all are loaded and packed anew.

    Raises ValueError when a parameter was not loaded, or only in part, which vLLM would just log.
    """
    model = worker.model_runner.get_model()
    missing = {name for name, _ in model.named_parameters()}
    with set_current_vllm_config(worker.vllm_config):
        initialize_layerwise_reload(model)
        # The model's own loader handles fused and tied parameters.
        missing -= model.load_weights(torch.load(path, mmap=True).items())
        for name, layer in model.named_modules():
            info = get_layerwise_info(layer)
            if isinstance(layer, LinearBase) and info.can_load():  # false once it is complete
                missing.add(f"{name}.weight")
        # Even after a partial update: this state is shared by all models of a process.
        finalize_layerwise_reload(model, worker.model_config)
        if missing:
            raise ValueError(f"a weight update left out {', '.join(sorted(missing))}")
        # Trap: a tied head receives no weights of its own: its packed copy would stay stale.
        layers = [layer for layer in model.modules() if isinstance(layer, VocabParallelEmbedding)]
        heads = [layer for layer in layers if isinstance(layer, ParallelLMHead)]
        for head in heads or layers:  # tied heads can be the embeddings (vLLM 0.26)
            head.quant_method.process_weights_after_loading(head)
    return_free_memory()
