"""The start of the engines on the CPU against bare imports of their libraries.

Each repeat starts a society of random models of 0.4 M parameters, with one rollout engine and
one rank for each policy, then as many new processes at once that only import vLLM or DeepSpeed:
seconds until all are there, and seconds of CPU time of all processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from comas.engines.cluster.agents import Agents
from comas.engines.rollout.vllm_options import engine_environment
from comas.utils.processes import command_line
from scripts.benchmarks._turns import Numbers, Repeated, Report, time_ratios
from scripts.benchmarks.sync import MODELS, small_config
from scripts.command import read_arguments
from scripts.random_models import save_random_model

KINDS = {"RolloutActor": "rollout engines", "PolicyActor": "policy ranks"}
"""Which processes count together, by the names that Ray gives them; others are Ray's own."""


@dataclass
class Arguments(Repeated):
    policies: int = 2
    repeats: int = 3


def main(arguments: Arguments) -> None:
    """Measure, and print the ratios."""
    report, num_policies = Report(arguments), arguments.policies
    with tempfile.TemporaryDirectory() as folder:
        save_random_model(Path(folder), MODELS["0.4M"]())
        report.compare(
            f"policies: {num_policies}; CPU seconds also by kind of process",
            {
                "start": lambda: start_agents(folder, num_policies),
                "bare imports": lambda: import_libraries(num_policies),
            },
            ratios=time_ratios("start", "bare imports"),
            num_warm_ups=0,
        )
    report.end()


def start_agents(folder: str, num_policies: int) -> Numbers:
    """Start agents; their time, and CPU seconds by kind of process."""
    config = small_config(num_agents=num_policies, zero_stage=0)
    started = time.perf_counter()
    with Agents(config, models=[folder] * num_policies, device="cpu"):
        seconds = time.perf_counter() - started
        by_kind = dict.fromkeys([*KINDS.values(), "Ray"], 0.0)
        for process in psutil.Process().children(recursive=True):
            command = " ".join(command_line(process))
            kind = next((kind for name, kind in KINDS.items() if name in command), "Ray")
            with suppress(psutil.NoSuchProcess):
                by_kind[kind] += sum(process.cpu_times()[:2])
    return {"seconds": seconds, "CPU seconds": sum(by_kind.values()), **by_kind}


def import_libraries(num_policies: int) -> Numbers:
    """Import each library in as many new processes as there are policies."""
    environment = os.environ | engine_environment("cpu") | {"DS_ACCELERATOR": "cpu"}
    started = time.perf_counter()
    processes = [
        (library, subprocess.Popen([sys.executable, "-c", f"import {library}"], env=environment))
        for library in ("vllm", "deepspeed")
        for _ in range(num_policies)
    ]
    cpu_seconds = 0.0
    for library, process in processes:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"import {library} ended with {process.returncode}"
        cpu_seconds += usage.ru_utime + usage.ru_stime
    return {"seconds": time.perf_counter() - started, "CPU seconds": cpu_seconds}


if __name__ == "__main__":
    main(read_arguments(Arguments, about=__doc__))
