"""What this machine has: a device to run on and disk to write to."""

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from comas.types import Device
from comas.verification.sandbox import HOW_TO_GET_NAMESPACES, Isolation, Sandbox, SandboxError

MIN_FREE_DISK_MIB = 512


@dataclass(frozen=True)
class Machine:
    """What the machine has for a run on ``device``."""

    device: Device
    num_gpus: int
    gpu_bytes: int
    """Memory of its smallest GPU; 0 on CPU."""
    host_bytes: int
    has_cuda_compiler: bool


def describe_machine(device: Device) -> Machine:
    """This machine, as a run on ``device`` sees it."""
    host_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if device == "cpu":
        return Machine(device, 0, 0, host_bytes, has_cuda_compiler=False)
    import torch
    from torch.utils.cpp_extension import CUDA_HOME

    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    smallest = min(gpu.total_memory for gpu in gpus)
    return Machine(device, len(gpus), smallest, host_bytes, has_cuda_compiler=CUDA_HOME is not None)


def choose_device(wanted: str) -> Device:
    """The device to run on; "auto" is cuda where torch sees a GPU.

    Raises ValueError when "cuda" is wanted and there is no GPU.
    """
    available = num_gpus() > 0
    if wanted == "cuda" and not available:
        raise ValueError(
            "cluster.device=cuda, but torch sees no CUDA GPU on this machine. Run where there is "
            "one, or set cluster.device=cpu (for tiny models: configs/quickstart.yaml)."
        )
    return "cuda" if wanted == "cuda" or (wanted == "auto" and available) else "cpu"


def num_gpus() -> int:
    """CUDA GPUs that torch sees; 0 where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count()


def settle_isolation(wanted: str | None, *, key: str) -> Isolation:
    """What runs model-written programs here; None requires namespaces where the machine has them.

    Warns of all that is missing where programs may run without them.

    Raises ValueError, which names the ``key``, when they are required and the machine has none.
    """
    is_required = wanted == "require_namespaces"
    try:
        with Sandbox(
            isolation="require_namespaces" if is_required else "allow_degraded"
        ) as sandbox:
            has_namespaces = sandbox.start()
    except SandboxError as error:
        raise ValueError(
            f"{key}={wanted or 'null'}, but model-written programs cannot run here: {error}. "
            f"{HOW_TO_GET_NAMESPACES}, or run them less isolated with {key}=allow_degraded."
        ) from error
    is_required = is_required or (wanted is None and has_namespaces)
    return "require_namespaces" if is_required else "allow_degraded"


def check_disk(saves: Path) -> None:
    """Raise OSError unless ``saves`` can be written (it is made) and has some MiB to spare."""
    saves.mkdir(parents=True, exist_ok=True)
    if not os.access(saves, os.W_OK):
        raise OSError(f"saves={saves}: the folder cannot be written; name another with saves=...")
    free = shutil.disk_usage(saves).free >> 20
    if free < MIN_FREE_DISK_MIB:
        raise OSError(
            f"saves={saves}: only {free} MiB of disk are free, and models and checkpoints need at "
            f"least {MIN_FREE_DISK_MIB} MiB. Free some, or name another disk with saves=..."
        )
