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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from comas.config.schema import Cluster, Config, Policy, Rollout, Society
from comas.engines.cluster.agents import Agents
from comas.engines.rollout.vllm_options import engine_environment
from comas.utils.processes import command_line
from scripts.benchmarks import read_arguments
from scripts.benchmarks.sync import save_model

KINDS = {"RolloutActor": "rollout engines", "PolicyActor": "policy ranks"}
"""Which processes count together, by the names that Ray gives them; others are Ray's own."""


@dataclass
class Arguments:
    policies: int = 2
    repeats: int = 3


@dataclass(frozen=True)
class Start:
    seconds: float
    cpu_s: dict[str, float]
    """By kind of process."""


def main(arguments: Arguments) -> None:
    """Measure, and print the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder), "0.4M", is_tied=True)
        pairs = [
            (_start_agents(folder, arguments.policies), _import_libraries(arguments.policies))
            for _ in range(arguments.repeats)
        ]
    sys.stdout.write(_report(arguments, pairs) + "\n")


def _start_agents(folder: str, num_policies: int) -> Start:
    config = Config(
        society=Society(num_agents=num_policies),
        rollout=Rollout(
            dtype="float32",
            engines_per_policy=1,
            max_prompt_tokens=128,
            max_response_tokens=64,
            cpu_kv_cache_mib=32,
        ),
        policy=Policy(
            dtype="float32",
            ranks_per_policy=1,
            zero_stage=0,
            adam_offload=False,
            gradient_checkpointing=False,
        ),
        cluster=Cluster(device="cpu"),
    )
    started = time.perf_counter()
    with Agents(config, models=[folder] * num_policies, device="cpu"):
        seconds = time.perf_counter() - started
        cpu_s = dict.fromkeys([*KINDS.values(), "Ray"], 0.0)
        for process in psutil.Process().children(recursive=True):
            command = " ".join(command_line(process))
            kind = next((kind for name, kind in KINDS.items() if name in command), "Ray")
            with suppress(psutil.NoSuchProcess):
                cpu_s[kind] += sum(process.cpu_times()[:2])
    return Start(seconds, cpu_s)


def _import_libraries(num_policies: int) -> Start:
    environment = os.environ | engine_environment("cpu") | {"DS_ACCELERATOR": "cpu"}
    started = time.perf_counter()
    processes = [
        (library, subprocess.Popen([sys.executable, "-c", f"import {library}"], env=environment))
        for library in ("vllm", "deepspeed")
        for _ in range(num_policies)
    ]
    cpu_s = dict.fromkeys(("vllm", "deepspeed"), 0.0)
    for library, process in processes:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"import {library} ended with {process.returncode}"
        cpu_s[library] += usage.ru_utime + usage.ru_stime
    return Start(time.perf_counter() - started, cpu_s)


def _report(arguments: Arguments, pairs: list[tuple[Start, Start]]) -> str:
    lines = [f"policies: {arguments.policies}; median of {len(pairs)}"]
    for name, starts in zip(("start", "bare imports"), zip(*pairs, strict=True), strict=True):
        parts = ", ".join(
            f"{kind} {median(start.cpu_s[kind] for start in starts):.1f}"
            for kind in starts[0].cpu_s
        )
        lines.append(
            f"{name:13} {median(start.seconds for start in starts):6.1f} s, "
            f"{median(map(_all_cpu_s, starts)):6.1f} s of CPU time ({parts})"
        )
    measures: dict[str, Callable[[Start], float]] = {
        "seconds": lambda start: start.seconds,
        "CPU time": _all_cpu_s,
    }
    for name, measure in measures.items():
        ratios = [measure(start) / measure(imports) for start, imports in pairs]
        lines.append(
            f"start / bare imports, {name}: {median(ratios):.2f} x "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )
    return "\n".join(lines)


def _all_cpu_s(start: Start) -> float:
    return sum(start.cpu_s.values())


if __name__ == "__main__":
    main(read_arguments(Arguments, about=__doc__))
