"""Requests Linux's permission to use AMX instructions.

Trap: oneDNN requests it, vLLM's own kernels (for bfloat16 layers of up to 1 MiB) do not: a model
without larger layers would end its process by an illegal instruction.
"""

import torch

torch.cpu._init_amx()  # returns False without AMX


class AmxWorker:
    """An empty extension of vLLM's worker, which makes it import this module before any weight is
    loaded."""
