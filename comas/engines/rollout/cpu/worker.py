"""Set-up of vLLM's worker on a CPU, which imports this module before it loads a model."""

import torch
from vllm.lora.punica_wrapper import punica_cpu

from comas.engines.rollout.cpu.lora import DenseAdapters

# Trap: oneDNN requests Linux's permission to use AMX instructions, vLLM's own kernels (for bfloat16
# layers of up to 1 MiB) do not: a model without larger layers would end its process by an illegal
# instruction.
torch.cpu._init_amx()  # returns False without AMX
punica_cpu.PunicaWrapperCPU = DenseAdapters  # vLLM looks the name up when it loads a model


class CpuWorker:
    """An empty extension of vLLM's worker, which makes it import this module."""
