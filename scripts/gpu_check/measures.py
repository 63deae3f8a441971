"""Measures of the checks: operations and memory."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from comas.preflight.memory import ModelShape
from comas.types import Device, TrainingSample

MATRIX_SIZES = {"cuda": 8192, "cpu": 1024}
SAMPLING_S = {"cuda": 0.2, "cpu": 1.0}
"""Between two looks at the memory; one at all of our processes takes tens of milliseconds."""


def model_flops(shape: ModelShape, samples: Sequence[TrainingSample]) -> float:
    """Floating-point operations of one update: 6 for each weight and token (2 forward, 4
    backward), the tied head only where a response token is predicted, and in every layer 6 for
    each hidden unit and pair of tokens. What gradient checkpointing repeats does not count.

    Example: 10 weights beside the head's 2 x 3, one layer, a prompt of 1 token and a response of
    1: 6 * 10 * 2 + 6 * 6 * 1 + 6 * 1 * 3 * 2^2 = 228.
    """
    head = shape.vocab_size * shape.hidden_size
    total = 0.0
    for sample in samples:
        num_response = len(sample.response_token_ids)
        num_tokens = len(sample.prompt_token_ids) + num_response
        total += 6 * (shape.num_parameters - head) * num_tokens + 6 * head * num_response
        total += 6 * shape.num_layers * shape.hidden_size * num_tokens**2
    return total


def in_process(measure: Callable[[Device], float], device: Device) -> float:
    """Call ``measure`` in a process of its own, which keeps no memory of a GPU."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure, device).result()


def matrix_flops(device: Device) -> float:
    """Operations per second of a plain matrix product, on a CPU of one thread, as a rank has."""
    import torch

    torch.set_num_threads(1)
    size = MATRIX_SIZES[device]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    matrix = torch.randn(size, size, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(10):
        started = time.perf_counter()
        (matrix @ matrix)[0, 0].item()  # waits until it is there
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


@dataclass
class MemoryPeak:
    """The most memory seen: of the GPU that holds most, or of our processes' on a CPU."""

    bytes: int


@contextmanager
def memory_peak(device: Device) -> Iterator[MemoryPeak]:
    """Look at the memory in use before the block, and again and again while it lasts.

    Raises OSError or CalledProcessError when it cannot be seen: at once, or behind the block.
    """
    look = gpu_bytes if device == "cuda" else process_bytes
    peak, stop = MemoryPeak(look()), threading.Event()

    def watch() -> None:
        while not stop.wait(SAMPLING_S[device]):
            peak.bytes = max(peak.bytes, look())

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield peak
        finally:
            stop.set()
        watching.result()


def gpu_bytes() -> int:
    """Memory in use on the GPU that holds most, of those that this process may use."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    if usable := os.environ.get("CUDA_VISIBLE_DEVICES"):
        query.append(f"--id={usable}")
    used = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    return max(int(line) for line in used.splitlines()) << 20


def process_bytes() -> int:
    """Memory of the processes that this one started; of a page that several share, each counts its
    part."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        try:
            total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total
