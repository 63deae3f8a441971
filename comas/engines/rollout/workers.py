"""The worker processes of a sharded engine (``rollout.tensor_parallel``)."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from comas.utils.processes import end_with_parent

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine

SHARED_MEMORY = Path("/dev/shm")
NAMES = ("psm_", "vllm_dist_")
"""Prefixes of the shared memory of vLLM's queues, and of its collectives on a CPU."""


def end_together(engine: "LLMEngine") -> None:
    """Make the workers of ``engine`` end with this process and vice versa, so that a sharded engine
    is lost as a whole, and leaves no shared memory behind."""
    engine.collective_rpc(_end_with_engine)
    engine.model_executor.register_failure_callback(lambda: os._exit(1))


def _end_with_engine(worker: object) -> None:
    """Make this worker, which has mapped its shared memory, end with the engine."""
    end_with_parent()  # otherwise a frozen worker would keep its share of a GPU
    # Mapped shared memory needs no name. vLLM removes most names when it ends in order, which an
    # actor does not, and those of its CPU collectives never.
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.parent == SHARED_MEMORY and path.name.startswith(NAMES):
            path.unlink(missing_ok=True)
