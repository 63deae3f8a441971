"""Set-up of vLLM's worker on a CPU, which imports this module before it loads a model."""

import torch
from vllm.distributed.weight_transfer import WeightTransferEngineFactory

from comas.engines.rollout.cpu.lora import use_dense_products

# Trap: oneDNN requests Linux's permission to use AMX instructions, vLLM's own kernels (for bfloat16
# layers of up to 1 MiB) do not: a model without larger layers would end its process by an illegal
# instruction.
torch.cpu._init_amx()  # returns False without AMX
WeightTransferEngineFactory.register_engine(
    "shared_memory", "comas.engines.rollout.cpu.weight_receiver", "SharedMemoryWeightTransferEngine"
)
use_dense_products()


class CpuWorker:
    """An empty extension of vLLM's worker, which makes it import this module."""
