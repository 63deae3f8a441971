"""The driver of a large society, on scripted engines over two Ray nodes: time and memory.

The real driver, Ray, connections and records of a run (``comas.train.co_evolve``); rollout engines
that answer at once (1,000 tokens of a prompt, about 240 of a response) and ranks that take their
buffer and learn nothing. Every agent has a policy of its own, with one engine and one rank, which
are processes of their own: 64 agents need about 10 GiB and two minutes to start.

  driver, ms      CPU time of this process for each response, of the whole loop: prompts, answers,
                  rewards, buffers, metrics, records
  driver, MiB     memory that this process has gained at most since its first steps
  store, KiB      what went through Ray's store, on both nodes together, for each response
  left, KiB       what the store held at the end of the run, of any step
  growth, KiB     memory that the driver gains in a step, in the second half of the run
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import ray
from ray._private.internal_api import node_stats
from ray.cluster_utils import Cluster
from tqdm import tqdm

from comas.config.schema import Config
from comas.data import QuestionSet
from comas.engines.cluster import launch
from comas.engines.cluster.recoveries import Recoveries
from comas.preflight.configuration import load_config
from comas.preflight.sizes import derive_sizes
from comas.run import RunDirectory
from comas.run.prepared import Prepared
from comas.train import agents_of, co_evolve, rollouts_of
from comas.types import Question
from comas.verification import Verifier
from scripts.benchmarks._scripted import ScriptedPolicy, ScriptedRollout
from scripts.benchmarks._turns import Numbers, Ratio, Repeated, Report
from scripts.command import read_arguments

LINEAR = 1.1
"""The largest society's over the smallest one's, for each response: linear within a tenth."""
WARM_UP = 5
"""Steps after which the memory of the driver is at its beginning."""


@dataclass
class Arguments(Repeated):
    sizes: str = "16,64"
    """Numbers of agents."""
    steps: int = 100
    repeats: int = 1


def main(arguments: Arguments) -> int:
    """Measure, print, and return 1 if a mark is missed."""
    launch.RolloutActor, launch.PolicyActor = ScriptedRollout, ScriptedPolicy  # type: ignore[misc]
    sizes = [int(size) for size in arguments.sizes.split(",")]
    report = Report(arguments)
    names = [f"{size} agents" for size in sizes]
    measured = {
        name: (lambda size=size: one_run(size, arguments.steps))
        for name, size in zip(names, sizes, strict=True)
    }
    report.compare(
        f"{arguments.steps} steps of each society, 6 responses of every agent a step",
        measured,
        ratios=[
            Ratio(names[-1], names[0], number, at_most=LINEAR)
            for number in ("driver, ms", "store, KiB")
        ],
        num_warm_ups=0,
    )
    return report.end()


def one_run(num_agents: int, num_steps: int) -> Numbers:
    """Train a society of so many scripted agents."""
    with tempfile.TemporaryDirectory() as saves, two_nodes():
        prepared = prepare(num_agents, num_steps, Path(saves))
        config = prepared.config
        with (
            Verifier(isolation=None, chosen=config.verifiers) as verifier,
            RunDirectory.create(config) as run,
            agents_of(config, prepared, Recoveries(0)) as agents,
            Watch(total=num_steps) as watch,
        ):
            rollouts = rollouts_of(config, prepared, agents, verifier, after=0)
            co_evolve(config, prepared, run, agents, verifier, rollouts, watch, after=0)
            return watch.numbers(num_responses=prepared.sizes.num_turns)


class Watch(tqdm):
    """A run's progress bar that notes what this process has used as each step ends."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(unit="step", dynamic_ncols=True, **settings)
        self._seen: list[tuple[float, int, Stored]] = []

    def update(self, n: float | None = 1) -> bool | None:
        memory = psutil.Process().memory_info().rss
        self._seen.append((time.process_time(), memory, stored()))
        return super().update(n)

    def numbers(self, *, num_responses: int) -> Numbers:
        """What each response of a step has cost, after ``WARM_UP`` steps."""
        cpu, memory, store = (list(column) for column in zip(*self._seen[WARM_UP:], strict=True))
        steps, half = len(cpu) - 1, len(memory) // 2
        of_second_half = memory[-1] - memory[half]
        return {
            "driver, ms": 1000 * (cpu[-1] - cpu[0]) / steps / num_responses,
            "driver, MiB": (max(memory) - memory[0]) / 1024**2,
            "store, KiB": (store[-1].ever - store[0].ever) / 1024 / steps / num_responses,
            "left, KiB": store[-1].now / 1024,
            "growth, KiB": of_second_half / 1024 / max(len(memory) - 1 - half, 1),
        }


class Stored(NamedTuple):
    """Bytes in Ray's store on all nodes."""

    now: int
    ever: int
    """All that was put there, or copied to another node."""


def stored() -> Stored:
    """What the store holds, and what it has held."""
    stats = [
        node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], False).store_stats
        for node in ray.nodes()
        if node["Alive"]
    ]
    return Stored(
        sum(own.object_store_bytes_used for own in stats),
        sum(own.cumulative_created_bytes for own in stats),
    )


@contextmanager
def two_nodes() -> Iterator[None]:
    """A Ray cluster of a head that holds no engines and two nodes, all on this machine."""
    small = {"object_store_memory": 512 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=512 << 20)
        os.environ["RAY_ADDRESS"] = cluster.address
        gc.collect()
        yield
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        cluster.shutdown()


def prepare(num_agents: int, num_steps: int, saves: Path) -> Prepared:
    """The paper's run, of so many agents and as many discussions a step."""
    overrides: Sequence[str] = [
        f"society.num_agents={num_agents}",
        f"rollout.batch_size={num_agents}",
        "interaction.prompt_reuse=1",
        "interaction.num_rounds=2",
        "rollout.engines_per_policy=1",
        "policy.ranks_per_policy=1",
        "policy.zero_stage=2",
        "policy.adam_offload=false",
        "cluster.device=cpu",
        f"training.num_steps={num_steps}",
        f"training.save_every={num_steps}",
        f"training.validate_every={num_steps}",
        f"saves={saves}",
    ]
    config: Config = load_config(Path("configs/comas.yaml"), overrides)
    files = (config.data.train, config.data.validation)
    questions = tuple(
        Question(f"q{number}", "math", f"What is {number} + 1?") for number in range(4 * num_agents)
    )
    answers = {question.question_id: str(number + 1) for number, question in enumerate(questions)}
    return Prepared(
        config,
        sharding="",
        models=config.models,
        train=QuestionSet(questions, answers),
        validation=QuestionSet(questions[:1], answers),
        probe=(),
        device="cpu",
        isolation=None,
        sizes=derive_sizes(config, num_questions=len(questions)),
        locations={name: str(saves) for name in (*config.models, *files)},
        sources={},
        doubts=(),
    )


if __name__ == "__main__":
    arguments = read_arguments(Arguments, about=__doc__)
    logging.basicConfig(level=logging.WARNING)
    sys.exit(main(arguments))
