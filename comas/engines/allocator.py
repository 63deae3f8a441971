"""PyTorch's allocator of GPU memory: segments that grow, but for what another process opens.

The micro batches of an update have all lengths, and the states leave a shared GPU and come back:
segments of fixed sizes fill with gaps. With segments that grow, what PyTorch holds stays near to
what is used. They are for the ranks that train alone: vLLM's engines sleep by a memory pool of
their own, which they break (pytorch issue 147851).
"""

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""PyTorch reads the allocator's settings from either; vLLM reads the first alone."""
EXPANDABLE = "expandable_segments:True"


def rank_allocator(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the allocator's settings for a rank on a GPU: none where ``environment`` has some, or
    on WSL2, whose drivers refuse such segments on many GPUs (pytorch issue 192330)."""
    is_wsl = "microsoft" in platform.uname().release.lower()
    if is_wsl or any(name in environment for name in VARIABLES):
        return {}
    return {VARIABLES[0]: EXPANDABLE}


@contextmanager
def fixed_segments() -> Iterator[None]:
    """Allocate memory of a GPU that any process of this user can open.

    Trap: a segment that grows is handed over by the system call pidfd_getfd, which a container
    without privileges refuses (pytorch issue 165685).
    """
    if not any(EXPANDABLE in os.environ.get(name, "") for name in VARIABLES):
        yield
        return
    from torch import _C

    _C._accelerator_setAllocatorSettings("expandable_segments:False")
    try:
        yield
    finally:
        _C._accelerator_setAllocatorSettings(EXPANDABLE)
