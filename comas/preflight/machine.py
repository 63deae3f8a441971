"""What this machine has: GPUs with their driver, memory; and the device to run on."""

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
"""CUDA -> the oldest driver that runs it (docs.nvidia.com/deploy/cuda-compatibility)."""
DRIVER_VERSION = re.compile(
    r"^NVRM version:.*Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", re.MULTILINE
)


@dataclass(frozen=True)
class Gpus:
    """The NVIDIA GPUs of this machine, as their driver and as torch see them."""

    driver: str | None
    """Version of the kernel's driver; None: none is loaded."""
    num_listed: int
    """GPUs that the driver has."""
    num_usable: int
    """GPUs that torch sees."""
    cuda: int | None
    """Major version of CUDA that torch was built for; None: it is the CPU's build."""


@dataclass(frozen=True)
class Machine:
    """What the machine has for a run on ``device``."""

    device: Device
    num_gpus: int
    gpu_bytes: int
    """Memory of its smallest GPU; 0 on CPU."""
    host_bytes: int
    has_cuda_compiler: bool
    is_imagined: bool = False
    """True if there are no GPUs, and it is only what a run is planned for."""
    num_cores: int = 1
    """CPU cores that a process of the run may use; read for a CPU only."""


def read_gpus(driver_files: Path = Path("/proc/driver/nvidia")) -> Gpus:
    """Ask the driver and torch."""
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
    """Return the oldest driver for this torch, or, of the CPU's build, for the pinned one."""
    return OLDEST_DRIVERS.get(gpus.cuda or PINNED_CUDA, OLDEST_DRIVERS[PINNED_CUDA])


def why_unusable(gpus: Gpus) -> str:
    """Return why torch sees no GPU here, and what to do about it."""
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
    """Return the device to run on; "auto" is cuda where there is a GPU."""
    return "cuda" if wanted == "cuda" or (wanted == "auto" and num_gpus > 0) else "cpu"


def why_on_cpu(wanted: str, gpus: Gpus) -> str | None:
    """Return why "auto" is the CPU although there is an NVIDIA driver, or None."""
    if wanted != "auto" or gpus.num_usable > 0 or gpus.driver is None:
        return None
    return f"everything runs on the CPU: {why_unusable(gpus)}"


def multiplies_bfloat16() -> bool:
    """True if this CPU has instructions for it; otherwise float32 is 2 to 8 times as fast."""
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def describe_machine(device: Device) -> Machine:
    """Return this machine, as a run on ``device`` sees it; for "cuda", torch has to see a GPU."""
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
    """Return a node as the paper's (up to eight A100-80GB), to plan for where there is none."""
    num_gpus = min(num_gpus, GPUS_OF_A_NODE)
    return Machine("cuda", num_gpus, 79 << 30, 2000 << 30, has_cuda_compiler=True, is_imagined=True)


def host_bytes() -> int:
    """Return the memory of the machine, or of the container."""
    from ray._common.utils import get_system_memory

    return get_system_memory()


def usable_cores() -> int:
    """Return the cores that this process may use, by its affinity and by the container's quota."""
    from ray._private.utils import get_num_cpus

    quota = int(get_num_cpus(override_docker_cpu_warning=True))
    return max(1, min(len(os.sched_getaffinity(0)), quota))


def settle_isolation(wanted: Isolation | None, *, key: str) -> Isolation:
    """Return what runs model-written programs; None requires namespaces where there are any.

    Warns of all that is missing where programs may run without them.

    Raises ValueError, which names the ``key``, when they are required and the machine has none.
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
