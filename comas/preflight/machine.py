"""The GPUs, driver, memory and cores of this machine, and the device to run on."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from comas.types import Device
from comas.utils.invocation import of_checkout
from comas.verification.sandbox import HOW_TO_GET_NAMESPACES, Isolation, Sandbox, SandboxError

PINNED_CUDA = 13
"""Major version of CUDA that the wheels of requirements.txt are built for."""
GPUS_OF_A_NODE = 8
OLDEST_DRIVERS = {12: 525, 13: 580}
"""Major version of CUDA -> oldest driver for it (docs.nvidia.com/deploy/cuda-compatibility)."""
DRIVER_VERSION = re.compile(
    r"^NVRM version:.*Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", re.MULTILINE
)


@dataclass(frozen=True)
class Gpus:
    """The NVIDIA GPUs of this machine, as the driver and torch see them."""

    driver: str | None
    """Version of the kernel's driver; None if none is loaded."""
    num_listed: int
    """GPUs that the driver lists."""
    num_usable: int
    """GPUs that torch sees."""
    cuda: int | None
    """Major version of CUDA that torch was built for; None for its CPU build."""


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


def read_gpus(driver_files: Path = Path("/proc/driver/nvidia")) -> Gpus:
    """Return the GPUs, as read from the driver's files and from torch."""
    import torch

    driver = None
    with suppress(FileNotFoundError):
        driver = DRIVER_VERSION.search((driver_files / "version").read_text())
    built_for = torch.version.cuda
    return Gpus(
        driver and driver[1],
        num_listed=len(list(driver_files.glob("gpus/*"))),
        num_usable=torch.cuda.device_count(),
        cuda=None if built_for is None else int(built_for.partition(".")[0]),
    )


def needed_driver(gpus: Gpus) -> int:
    """Return the oldest driver for this torch (for the pinned one, if this is a CPU build)."""
    return OLDEST_DRIVERS.get(gpus.cuda or PINNED_CUDA, OLDEST_DRIVERS[PINNED_CUDA])


def why_unusable(gpus: Gpus) -> str:
    """Return why torch sees no GPU, with the remedy."""
    oldest = needed_driver(gpus)
    if gpus.driver is None:
        return (
            "this machine has no NVIDIA driver (there is no /proc/driver/nvidia/version): run "
            f"where there are GPUs, with driver {oldest} or newer"
        )
    if int(gpus.driver.partition(".")[0]) < oldest:
        return (
            f"the NVIDIA driver {gpus.driver} is too old for CUDA {gpus.cuda or PINNED_CUDA}, for "
            f"which the pinned torch and vllm are built: install driver {oldest} or newer, or set "
            f"REQUIREMENTS to other pins: {of_checkout('configs/README.md, Environments')}"
        )
    if gpus.cuda is None:
        return "the installed torch is the CPU's build: unset REQUIREMENTS"
    return (
        f"torch sees no GPU, though driver {gpus.driver} is new enough: look at nvidia-smi and at "
        "CUDA_VISIBLE_DEVICES"
    )


def choose_device(wanted: str, *, num_gpus: int) -> Device:
    """Return the device to run on; "auto" is cuda if there is a GPU."""
    return "cuda" if wanted == "cuda" or (wanted == "auto" and num_gpus > 0) else "cpu"


def why_on_cpu(wanted: str, gpus: Gpus) -> str | None:
    """Return why "auto" is the CPU although there is an NVIDIA driver, or None."""
    if wanted != "auto" or gpus.num_usable > 0 or gpus.driver is None:
        return None
    return f"everything runs on the CPU: {why_unusable(gpus)}"


def multiplies_bfloat16() -> bool:
    """True if this CPU has bfloat16 instructions; otherwise float32 is 2 to 8 times as fast."""
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

    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return Machine(
        device,
        num_gpus=len(gpus),
        gpu_bytes=min(gpu.total_memory for gpu in gpus),
        host_bytes=host_bytes(),
        has_cuda_compiler=CUDA_HOME is not None,
    )


def imagined_machine(num_gpus: int) -> Machine:
    """Return a node like the paper's (up to eight A100-80GB), to estimate memory without GPUs."""
    num_gpus = min(num_gpus, GPUS_OF_A_NODE)
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
