"""All checks, one after another: each row is told as soon as it is known."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from comas.engines.cluster.supervision import EngineError
from comas.preflight.machine import Machine, describe_machine, read_gpus, why_unusable
from comas.types import Device
from comas.utils.terminal import start_command
from scripts.command import say
from scripts.gpu_check.attention import MAX_ERROR, attention_error
from scripts.gpu_check.measures import gpu_bytes, in_process, matrix_flops
from scripts.gpu_check.plan import (
    CHECKS,
    LIMIT_S,
    SIZES,
    Arguments,
    Planned,
    planned,
    society_config,
    why_impossible,
)
from scripts.gpu_check.rows import Row, failed_row, table_head
from scripts.gpu_check.society import DoesNotFitError, run_check, save_model

ABOUT = "\n".join(
    [
        "Checks and times what is specific to GPUs, on random models that are made here:",
        *(f"  {name:9} {check.shows}" for name, check in CHECKS.items()),
    ]
)


@dataclass
class Budget:
    """Seconds that are left, and whether another check fits."""

    seconds: float
    """0: no end."""
    started: float = field(default_factory=time.monotonic)
    longest: float = 0.0
    """Seconds of the longest check so far."""

    @property
    def left(self) -> float:
        return self.started + self.seconds - time.monotonic() if self.seconds else float("inf")

    def why_over(self) -> str | None:
        """Why no check begins any more: the next may take as long as the longest so far."""
        if self.left > self.longest:
            return None
        return f"{max(self.left, 0):.0f} s are left, and a check took {self.longest:.0f} s"


def main(arguments: Arguments) -> int:
    """Check what is asked for; returns the exit status."""
    if error := wrong_value(arguments):
        sys.stderr.write(f"error: {error}\n")
        return 2
    device: Device = "cuda" if arguments.device == "cuda" else "cpu"
    start_command("comas")
    # Else DeepSpeed, which transformers imports, says in the middle of the table what it finds.
    os.environ["DS_ACCELERATOR"] = device
    budget = Budget(arguments.budget)
    faults = attention_faults(device)
    peak_flops = in_process(matrix_flops, device)
    say(f"matrix product on {device}: {peak_flops / 1e12:.3g} TFLOP/s\n\n{table_head()}")
    machine, rows, not_run = describe_machine(device), [], []
    with tempfile.TemporaryDirectory(prefix="comas-check-") as folder:
        for pair in planned(arguments):
            if reason := why_impossible(pair.check, machine) or budget.why_over():
                not_run.append(f"{pair}: {reason}")
                continue
            try:
                row = run_one(pair, Path(folder), machine, budget, peak_flops=peak_flops)
            except DoesNotFitError as error:
                not_run.append(f"{pair}: {error}")
            except (EngineError, TimeoutError) as error:
                faults.append(f"{pair}: {error}")
                say(failed_row(pair.name, pair.size_name))
            else:
                say(str(row))
                rows.append(row)
                faults += row.faults
    say("\n".join(["", *(f"not run: {reason}" for reason in not_run)]))
    say("\n".join([f"fault: {fault}" for fault in faults] or ["all checks that ran passed"]))
    return 0 if rows and not faults else 1


def run_one(
    pair: Planned, folder: Path, machine: Machine, budget: Budget, *, peak_flops: float
) -> Row:
    """One check, within what is left of the budget; makes its model where it is the first."""
    started, model = time.monotonic(), folder / pair.size_name
    if not model.exists():
        save_model(model, pair.size, device=machine.device)
    limit_s = min(LIMIT_S, max(budget.left, 1.0))
    config = society_config(pair.check, pair.size, device=machine.device, limit_s=limit_s)
    try:
        return run_check(pair, config, model=str(model), machine=machine, peak_flops=peak_flops)
    finally:
        budget.longest = max(budget.longest, time.monotonic() - started)


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
    numbers = (
        arguments.agents, arguments.requests, arguments.response_tokens, arguments.budget,
    )  # fmt: skip
    if arguments.device not in ("cuda", "cpu"):
        return f"device={arguments.device}: takes cuda or cpu"
    if set(arguments.sizes) - set(SIZES):
        return f"size={arguments.size}: takes {', '.join(SIZES)}"
    if set(arguments.checks.split(",")) - set(CHECKS):
        return f"checks={arguments.checks}: takes {', '.join(CHECKS)}"
    if min(numbers) < 0:
        return "agents, requests, response_tokens and budget take numbers of at least 0"
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
