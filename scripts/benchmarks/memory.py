"""The memory of a policy's process over many updates, each on another buffer.

One rank on a CPU trains a model of the quick-start's shape. Shown are its resident memory, and what
of it malloc has handed out ("in use"): the rest is code, shared pages, and holes that malloc keeps
for later. A leak grows both; holes grow the former alone, and come to an end.
"""

from __future__ import annotations

import ctypes
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil

from scripts.benchmarks.update import draw_samples, start_trainer
from scripts.command import read_arguments, say

MIB = 1 << 20


@dataclass
class Arguments:
    steps: int = 300
    samples: int = 24
    every: int = 25
    """Updates from one line to the next."""


@dataclass(frozen=True)
class Reading:
    """MiB of this process after so many updates."""

    step: int
    resident: float
    in_use: float


def main(arguments: Arguments) -> None:
    """Update, read and print; then what an update of the second half has added."""
    import torch

    torch.set_num_threads(1)
    readings = []
    say(f"{'updates':>8} {'resident MiB':>13} {'in use MiB':>11}")
    with tempfile.TemporaryDirectory() as folder:
        trainer = start_trainer(Path(folder))
        for step in range(1, arguments.steps + 1):
            trainer.update(draw_samples(arguments.samples, seed=step), step=step)
            if step == 1 or step % arguments.every == 0:
                readings.append(read(step))
                own = readings[-1]
                say(f"{own.step:8} {own.resident:13.1f} {own.in_use:11.1f}")
    say(growth(readings))


def read(step: int) -> Reading:
    """Read the memory of this process."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Mallinfo
    allocated = libc.mallinfo2()
    in_use = allocated.uordblks + allocated.hblkhd
    return Reading(step, psutil.Process().memory_info().rss / MIB, in_use / MIB)


class Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def growth(readings: list[Reading]) -> str:
    """The memory that an update has added over the second half of the readings, in words."""
    middle, last = readings[len(readings) // 2], readings[-1]
    steps = max(last.step - middle.step, 1)
    return (
        f"an update from {middle.step} to {last.step} adds "
        f"{(last.resident - middle.resident) / steps:.3f} MiB resident, "
        f"{(last.in_use - middle.in_use) / steps:.3f} in use"
    )


if __name__ == "__main__":
    main(read_arguments(Arguments, about=__doc__ or ""))
