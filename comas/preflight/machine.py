"""The GPUs, memory and cores of this machine, and the device to run on."""

import os
from dataclasses import dataclass
from pathlib import Path

from comas.types import Device
from comas.verification.sandbox import HOW_TO_GET_NAMESPACES, Isolation, Sandbox, SandboxError


@dataclass(frozen=True)
class Machine:
    """The resources for a run on ``device``."""

    device: Device
    num_gpus: int
    gpu_bytes: int
    """Memory of the smallest GPU; 0 on a CPU."""
    host_bytes: int
    has_cuda_compiler: bool
    is_imagined: bool = False
    """True if there are no GPUs, and this machine only serves to estimate memory."""
    num_cores: int = 1
    """CPU cores that the run may use; read on a CPU only."""


def count_gpus() -> int:
    """Return the number of GPUs that torch sees."""
    import torch

    return torch.cuda.device_count()


def why_no_gpu() -> str:
    """Return why torch sees no GPU: there is no driver, an old one, or torch is built for CPUs."""
    import torch

    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return str(error).rstrip(".")
    return "look at nvidia-smi and at CUDA_VISIBLE_DEVICES"


def choose_device(wanted: str, *, num_gpus: int) -> Device:
    """Return the device to run on; "auto" is cuda if there is a GPU."""
    return "cuda" if wanted == "cuda" or (wanted == "auto" and num_gpus > 0) else "cpu"


def why_on_cpu(wanted: str, *, num_gpus: int) -> str | None:
    """Return why "auto" is the CPU although there is an NVIDIA driver, or None."""
    if wanted != "auto" or num_gpus > 0 or not Path("/proc/driver/nvidia/version").exists():
        return None
    return f"everything runs on the CPU, as torch sees no GPU: {why_no_gpu()}"


def multiplies_bfloat16() -> bool:
    """Return True if this CPU has bfloat16 instructions (else float32 is 2 to 8 times as fast)."""
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def describe_machine(device: Device) -> Machine:
    """Return this machine for a run on ``device``; for "cuda", torch must see a GPU."""
    if device == "cpu":
        return Machine(
            device, 0, 0, host_bytes(), has_cuda_compiler=False, num_cores=usable_cores()
        )
    import torch
    from torch.utils.cpp_extension import CUDA_HOME

    gpus = [torch.cuda.get_device_properties(i) for i in range(count_gpus())]
    return Machine(
        device,
        num_gpus=len(gpus),
        gpu_bytes=min(gpu.total_memory for gpu in gpus),
        host_bytes=host_bytes(),
        has_cuda_compiler=CUDA_HOME is not None and Path(CUDA_HOME, "bin/nvcc").exists(),
    )


def imagined_machine(num_gpus: int) -> Machine:
    """Return a node like the paper's (up to eight A100-80GB), to estimate memory without GPUs."""
    num_gpus = min(num_gpus, 8)
    return Machine("cuda", num_gpus, 79 << 30, 2000 << 30, has_cuda_compiler=True, is_imagined=True)


def host_bytes() -> int:
    """Return the memory of the machine, or the container's limit."""
    from ray._common.utils import get_system_memory

    return get_system_memory()


def usable_cores() -> int:
    """Return the cores that this process may use, by its affinity and the container's quota."""
    from ray._private.utils import get_num_cpus

    quota = int(get_num_cpus(override_docker_cpu_warning=True))
    return max(1, min(len(os.sched_getaffinity(0)), quota))


def settle_isolation(wanted: Isolation | None, *, key: str) -> Isolation:
    """Return the isolation of model-written programs; None requires namespaces if there are any.

    Warns of each missing means of isolation if programs may run without it.

    Raises ValueError, naming the ``key``, if namespaces are required and the machine has none.
    """
    try:
        with Sandbox(isolation=wanted or "allow_degraded") as sandbox:
            has_namespaces = sandbox.start()
    except SandboxError as error:
        raise ValueError(
            f"{key}={wanted or 'null'}, but model-written programs cannot run here: {error}. "
            f"{HOW_TO_GET_NAMESPACES}, or run them less isolated with {key}=allow_degraded."
        ) from error
    return wanted or ("require_namespaces" if has_namespaces else "allow_degraded")
