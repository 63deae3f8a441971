"""Settings of PyTorch's GPU allocator: expandable segments, except for memory that is shared.

Micro batches vary in length and states leave a shared GPU and return, which fragments segments of
fixed size. Only policy ranks use expandable segments: they break the memory pool by which vLLM's
engines sleep (pytorch issue 147851).
"""

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""PyTorch reads the allocator's settings from either; vLLM only from the first."""
EXPANDABLE = "expandable_segments:True"


def rank_allocator(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the allocator settings of a rank on a GPU: empty if ``environment`` has some already,
    or on WSL2, whose drivers refuse such segments on many GPUs (pytorch issue 192330)."""
    is_wsl = "microsoft" in platform.uname().release.lower()
    if is_wsl or any(name in environment for name in VARIABLES):
        return {}
    return {VARIABLES[0]: EXPANDABLE}


@contextmanager
def fixed_segments() -> Iterator[None]:
    """Allocate GPU memory that other processes of this user can open.

    Trap: expandable segments are shared by the system call pidfd_getfd, which unprivileged
    containers refuse (pytorch issue 165685).
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
