"""Ways to compute the same, measured in turns in one process."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

Way = Callable[[], object]
Results = dict[str, list["Measurement"]]


@dataclass(frozen=True)
class Measurement:
    """One way, once."""

    seconds: float
    cpu_seconds: float
    """Of all threads: on one thread, the time that a quiet machine would take."""
    peak_bytes: int
    """Memory of the process beyond that at the start."""


def measure_in_turns(ways: dict[str, Way], *, repeats: int) -> Results:
    """Every way ``repeats`` times, after one time that does not count."""
    results: Results = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, way in ways.items():
            results[name].append(_measure(way))
    return {name: measured[1:] for name, measured in results.items()}


def table(results: Results) -> list[str]:
    """Medians of every way."""
    lines = [f"{'':18} {'seconds':>8} {'of CPU':>8} {'peak MiB':>9}"]
    for name, measured in results.items():
        seconds, cpu = median(m.seconds for m in measured), median(m.cpu_seconds for m in measured)
        peak = median(m.peak_bytes for m in measured) / 2**20
        lines.append(f"{name:18} {seconds:8.3f} {cpu:8.3f} {peak:9.0f}")
    return lines


def ratio(name: str, other: str, results: Results) -> str:
    """The time of one way against another's, turn by turn: median and range."""
    pairs = list(zip(results[name], results[other], strict=True))
    wall = sorted(one.seconds / two.seconds for one, two in pairs)
    cpu = sorted(one.cpu_seconds / two.cpu_seconds for one, two in pairs)
    return (
        f"{name} : {other} = {median(wall):.2f} in time ({wall[0]:.2f} to {wall[-1]:.2f}), "
        f"{median(cpu):.2f} in CPU time ({cpu[0]:.2f} to {cpu[-1]:.2f})"
    )


def _measure(way: Way) -> Measurement:
    ctypes.CDLL(None).malloc_trim(0)  # memory kept for reuse would hide a peak
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before, started, cpu_started = _memory("VmRSS"), time.perf_counter(), time.process_time()
    way()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return Measurement(seconds, cpu_seconds, _memory("VmHWM") - before)


def _memory(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split(f"{field}:")[1].split()[0])
