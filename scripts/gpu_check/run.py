"""All checks, one after another: each row is told as soon as it is known."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from comas.engines.cluster.supervision import EngineError
from comas.preflight.machine import Machine, describe_machine, read_gpus, why_unusable
from comas.types import Device
from comas.utils.terminal import start_command
from scripts.command import say
from scripts.gpu_check.checks import (
    CHECKS,
    LIMIT_S,
    SIZES,
    Arguments,
    Planned,
    planned,
    society_config,
    why_impossible,
)
from scripts.gpu_check.measures import (
    MAX_ERROR,
    attention_error,
    gpu_bytes,
    in_process,
    matrix_flops,
)
from scripts.gpu_check.society import (
    HEADS,
    DoesNotFitError,
    Result,
    failed_row,
    in_table,
    run_check,
    save_model,
)

ABOUT = "\n".join(
    [
        "Checks and times what is specific to GPUs, on random models that are made here:",
        *(f"  {name:9} {check.shows}" for name, check in CHECKS.items()),
    ]
)


def main(arguments: Arguments) -> int:
    """Check what is asked for; returns the exit status."""
    if error := wrong_value(arguments):
        sys.stderr.write(f"error: {error}\n")
        return 2
    device: Device = "cuda" if arguments.device == "cuda" else "cpu"
    start_command("comas")
    # Else DeepSpeed, which transformers imports, says in the middle of the table what it finds.
    os.environ["DS_ACCELERATOR"] = device
    deadline = time.monotonic() + (arguments.budget or float("inf"))
    faults = attention_faults(device)
    peak_flops = in_process(matrix_flops, device)
    say(f"matrix product on {device}: {peak_flops / 1e12:.3g} TFLOP/s\n")
    say(f"{in_table(HEADS)}\n{'|---' * len(HEADS)}|")
    machine, num_rows, not_run, longest = describe_machine(device), 0, [], 0.0
    with tempfile.TemporaryDirectory(prefix="comas-check-") as folder:
        for pair in planned(arguments):
            started = time.monotonic()
            left = deadline - started
            reason = why_impossible(pair.check, machine)
            if reason is None and left <= longest:  # the next may take as long
                reason = f"{max(left, 0):.0f} s are left, and a check took {longest:.0f} s"
            if reason:
                not_run.append(f"{pair}: {reason}")
                continue
            try:
                result = run_one(pair, Path(folder), machine, left, peak_flops=peak_flops)
            except DoesNotFitError as error:
                not_run.append(f"{pair}: {error}")
            except (EngineError, TimeoutError) as error:
                faults.append(f"{pair}: {error}")
                say(failed_row(pair))
            else:
                say(result.row)
                num_rows += 1
                faults += result.faults
            longest = max(longest, time.monotonic() - started)
    say("\n".join(["", *(f"not run: {reason}" for reason in not_run)]))
    say("\n".join([f"fault: {fault}" for fault in faults] or ["all checks that ran passed"]))
    return 0 if num_rows and not faults else 1


def run_one(
    pair: Planned, folder: Path, machine: Machine, left_s: float, *, peak_flops: float
) -> Result:
    """One check, within what is left of the budget; makes its model where it is the first."""
    model, limit_s = folder / pair.size_name, min(LIMIT_S, max(left_s, 1.0))
    if not model.exists():
        save_model(model, pair.size, device=machine.device)
    config = society_config(pair.check, pair.size, device=machine.device, limit_s=limit_s)
    return run_check(pair, config, model=str(model), machine=machine, peak_flops=peak_flops)


def attention_faults(device: Device) -> list[str]:
    """Tells how far attention is off, and gives what is wrong with it."""
    most = MAX_ERROR[device]
    try:
        error = in_process(attention_error, device)
    except (RuntimeError, TypeError) as failure:  # a kernel that fails, or takes other arguments
        return [f"attention on {device}: {failure}"]
    say(f"attention on {device}: off by {error:.2g} of its norm (at most {most:g})")
    return [] if error < most else [f"attention on {device} is off by {error:.2g} of its norm"]


def wrong_value(arguments: Arguments) -> str | None:
    """The first wrong value of the command line, in words; None where there is none."""
    if arguments.device not in ("cuda", "cpu"):
        return f"device={arguments.device}: takes cuda or cpu"
    if set(arguments.sizes) - set(SIZES):
        return f"size={arguments.size}: takes {', '.join(SIZES)}"
    if set(arguments.checks.split(",")) - set(CHECKS):
        return f"checks={arguments.checks}: takes {', '.join(CHECKS)}"
    if arguments.budget < 0:
        return f"budget={arguments.budget:g}: takes a number of at least 0"
    return why_no_gpu() if arguments.device == "cuda" else None


def why_no_gpu() -> str | None:
    """Why nothing can be checked on GPUs here; None where it can."""
    gpus = read_gpus()
    if gpus.num_usable == 0:
        return (
            f"{why_unusable(gpus)}. On a CPU the same steps are taken by: "
            "bash scripts/gpu_check.sh device=cpu"
        )
    try:
        gpu_bytes()
    except (OSError, subprocess.CalledProcessError) as error:
        return (
            f"the memory in use on a GPU is read by nvidia-smi, which does not work ({error}): "
            "put the driver's nvidia-smi on PATH (in a container: run it with the NVIDIA runtime "
            "and NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
        )
    return None
