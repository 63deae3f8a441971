"""Permission to use a processor's AMX instructions, which Linux gives a process that asks for it.

Trap: oneDNN asks, vLLM's own kernels do not. They compute bfloat16 layers of up to 1 MiB, so
without it a model that has no larger ones ends its process by an illegal instruction.
"""

import torch

torch.cpu._init_amx()  # False where there is no AMX


class AmxWorker:
    """Adds nothing to vLLM's worker: named as its extension, it has the process of the worker
    import this module before any weight is loaded."""
