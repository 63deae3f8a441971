"""The worker processes of an engine that is sharded (``rollout.tensor_parallel``)."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from comas.utils.processes import end_with_parent

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine

SHARED_MEMORY = Path("/dev/shm")
NAMES = ("psm_", "vllm_dist_")
"""How those of the memory of vLLM's queues, and of its collectives on a CPU, begin."""


def end_together(engine: "LLMEngine") -> None:
    """Let the workers of ``engine`` end with this process, and this one with any of them, so that
    a sharded engine is lost as one that has no other process is. No memory is left behind."""
    engine.collective_rpc(_end_with_engine)
    engine.model_executor.register_failure_callback(lambda: os._exit(1))


def _end_with_engine(worker: object) -> None:
    """In a worker, which has met the engine and the other workers by now."""
    end_with_parent()  # else a frozen one would keep its part of a GPU
    # As long as somebody maps it, shared memory needs no name. vLLM takes most names away when it
    # ends in order, which an actor does not, and those of its collectives on a CPU never.
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.parent == SHARED_MEMORY and path.name.startswith(NAMES):
            path.unlink(missing_ok=True)
