"""On how many threads engines and ranks compute on a CPU."""

import os
from collections.abc import Sequence
from dataclasses import replace

from comas.config.schema import Config
from comas.preflight.machine import Machine
from comas.preflight.model_shape import ModelShape

SMALL_PARAMETERS = 20_000_000
"""Below it there is one thread. On two cores, two threads took 1.2 to 1.6 times as long as one to
sample with 0.17 million parameters, where waking them costs more than they do, and 0.65 to 0.75 of
the time with 135 million; updates gained from 1 million on (0.7 of the time; 0.55 with 30)."""


def num_threads(num_parameters: int, *, num_cores: int, at_work: int) -> int:
    """Return on how many threads each of ``at_work`` engines or ranks computes that work at once.

    Example: two engines of a model with 135 million parameters on 16 cores: 8.
    """
    return 1 if num_parameters < SMALL_PARAMETERS else max(1, num_cores // at_work)


def settle_threads(
    config: Config, *, shapes: Sequence[ModelShape], machine: Machine
) -> tuple[Config, str | None]:
    """Return ``config`` with ``cluster.cpu_threads`` decided, and a line that says what and why;
    on GPUs as it is, for the nodes' cores decide there. ``shapes`` are those of every policy's
    model.

    Engines of all policies generate at once, and so do their ranks train; with
    ``training.max_staleness`` both at once. (Of a Ray cluster of several nodes, as if all were on
    one.)

    Example: two policies on 16 cores, an engine and a rank each: 8 threads.
    """
    if machine.device == "cuda":
        return config, None
    engines = config.rollout.engines_per_policy * config.rollout.tensor_parallel
    num_engines = engines * len(config.families)
    num_ranks = config.policy.ranks_per_policy * len(config.trained_families)
    overlaps = config.training.max_staleness > 0
    at_work = num_engines + num_ranks if overlaps else max(num_engines, num_ranks)
    largest = max(shape.num_parameters for shape in shapes)
    threads, why = config.cluster.cpu_threads, "as configured"
    if threads is None:
        threads = num_threads(largest, num_cores=machine.num_cores, at_work=at_work)
        why = f"cores: {machine.num_cores}, engines or ranks at work at once: {at_work}"
        if largest < SMALL_PARAMETERS:
            why = f"models of less than {SMALL_PARAMETERS // 10**6} million parameters"
    line = f"threads: {threads} of each engine and rank ({why})"
    if "OMP_NUM_THREADS" in os.environ:
        line += "; OMP_NUM_THREADS of the environment is not read, cluster.cpu_threads is"
    return replace(config, cluster=replace(config.cluster, cpu_threads=threads)), line
