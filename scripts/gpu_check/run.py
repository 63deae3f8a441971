"""Runs the checks one after another, and prints each row at once."""

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from math import nan
from pathlib import Path

from comas.preflight.machine import count_gpus, describe_machine, why_no_gpu
from comas.preflight.memory import GIB
from comas.utils.files import append_lines
from comas.utils.terminal import start_command
from scripts.command import say
from scripts.gpu_check.checks import (
    CHECKS,
    LIMIT_S,
    SIZES,
    Arguments,
    planned,
    save_model,
    society_config,
    why_impossible,
)
from scripts.gpu_check.measures import MAX_ERROR, attention_error, gpu_bytes, isolated, matrix_flops
from scripts.gpu_check.society import COLUMNS, NotRunError, Row, run_check


def main(arguments: Arguments) -> int:
    """Run the requested checks; return the exit status."""
    if error := wrong_value(arguments):
        sys.stderr.write(f"error: {error}\n")
        return 2
    device = arguments.device
    start_command("comas")
    # Otherwise DeepSpeed, imported by transformers, logs in the middle of the table.
    os.environ["DS_ACCELERATOR"] = device
    deadline = time.monotonic() + (arguments.budget or float("inf"))
    rows = Rows(Path(arguments.out))
    with rows.attempt("attention") as row:
        row["error"], most = isolated(attention_error, device), MAX_ERROR[device]
        say(f"attention on {device}: off by {row['error']:.2g} of its norm (at most {most:g})")
        if not row["error"] < most:
            row["faults"] = [f"off by {row['error']:.2g} of its norm"]
    with rows.attempt("matrix product") as row:
        row["FLOP/s"] = isolated(matrix_flops, device)
        say(f"matrix product on {device}: {row['FLOP/s'] / 1e12:.3g} TFLOP/s\n")
    peak_flops = row.get("FLOP/s", nan)
    say(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    machine, pace = describe_machine(device), 1.0
    if arguments.host_gib:
        machine = replace(machine, host_bytes=int(arguments.host_gib * GIB))
    with tempfile.TemporaryDirectory(prefix="comas-check-") as folder:
        for pair in planned(arguments):
            started = time.monotonic()
            with rows.attempt(pair.name, pair.size_name) as row:
                left, expected = deadline - started, pair.estimate_s * pace
                if reason := why_impossible(pair.check, machine):
                    raise NotRunError(reason)
                if left < expected:
                    raise NotRunError(f"{max(left, 0):.0f} s are left of {expected:.0f} s")
                model, limit_s = Path(folder, pair.size_name), min(LIMIT_S, max(left, 1.0))
                if not model.exists():
                    isolated(save_model, model, pair.size, device)
                config = society_config(pair.check, pair.size, device=device, limit_s=limit_s)
                row |= run_check(
                    pair, config, model=str(model), machine=machine, peak_flops=peak_flops
                )
            pace = max(pace, (time.monotonic() - started) / pair.estimate_s)
    return rows.end()


class Rows:
    """The results of the checks, printed and written at once, after those of earlier ones."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "rows.jsonl"
        self._rows: list[Row] = []

    @contextmanager
    def attempt(self, check: str, model: str = "") -> Iterator[Row]:
        """Add the row that the block fills; an error in the block becomes a fault of the check,
        with its traceback (including that of an engine's process)."""
        row: Row = {"check": check, "model": model, "faults": []}
        try:
            yield row
        except NotRunError as error:
            row |= {"not run": str(error), "verdict": "not run"}
        except Exception as error:
            row |= {"faults": [f"{type(error).__name__}: {error}"]}
            row["traceback"] = traceback.format_exc()
            sys.stderr.write(row["traceback"])
        row.setdefault("verdict", "FAULT" if row["faults"] else "ok")
        row["ended"] = datetime.now().astimezone().isoformat(timespec="seconds")
        self._rows.append(row)
        append_lines(self._file, [json.dumps(row).encode()])
        if model and "not run" not in row:
            cells = (form.format(row[key]) if key in row else "" for key, form in COLUMNS.items())
            say(f"| {' | '.join(cells)} |")

    def end(self) -> int:
        """Print what did not run and what failed; return the exit status."""
        say("")
        faults, num_run = [], 0
        for row in self._rows:
            name = row["check"] + f" of {row['model']}" * bool(row["model"])
            if "not run" in row:
                say(f"not run: {name}: {row['not run']}")
            else:
                num_run += bool(row["model"])
            if phases := row.get("phases"):
                told = ", ".join(f"{phase} {seconds:.3f}" for phase, seconds in phases.items())
                say(f"an update by {name}, seconds (its operations: rows.jsonl): {told}")
            faults += [f"fault: {name}: {fault}" for fault in row["faults"]]
        say("\n".join(faults or ["all checks that ran passed"]))
        return 0 if num_run and not faults else 1


def wrong_value(arguments: Arguments) -> str | None:
    """Describe a wrong name on the command line, or unusable GPUs; None if all is well."""
    if set(arguments.sizes) - set(SIZES):
        return f"size={arguments.size}: takes {', '.join(SIZES)}"
    if set(arguments.checks.split(",")) - set(CHECKS):
        return f"checks={arguments.checks}: takes {', '.join(CHECKS)}"
    return why_unusable() if arguments.device == "cuda" else None


def why_unusable() -> str | None:
    """Return why GPUs cannot be checked here, or None if they can."""
    if count_gpus() == 0:
        return (
            f"torch sees no GPU: {why_no_gpu()}. On a CPU the same steps are taken by: "
            "bash scripts/gpu_check.sh device=cpu"
        )
    try:
        gpu_bytes("cuda")
    except (OSError, subprocess.CalledProcessError) as error:
        return (
            f"the memory in use on a GPU is read by nvidia-smi, which does not work ({error}): "
            "put the driver's nvidia-smi on PATH (in a container: run it with the NVIDIA runtime "
            "and NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
        )
    return None
