"""One check: a society takes two steps as in training, and goes through what the check adds."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any

import psutil

from comas.config.schema import Config
from comas.engines.cluster.agents import Agents
from comas.engines.cluster.supervision import Recoveries
from comas.preflight.machine import Machine
from comas.preflight.memory import GIB
from comas.preflight.model_shape import model_shape
from comas.preflight.plan import memory_needs, settle_sharding, settle_threads
from comas.types import Device, Request, TrainingSample, UpdateStats
from comas.utils.interrupts import run
from comas.utils.processes import command_line
from scripts.gpu_check.baselines import plain_update_s, vllm_tokens_per_s
from scripts.gpu_check.checks import Planned, Size
from scripts.gpu_check.measures import gpu_bytes, in_process, model_flops

MOST_TOKENS_OF_A_SENTENCE = 12
"""Most tokens of a sentence of which ``sample`` makes prompts."""
MAX_MISMATCH = 0.02
"""Mean |policy - engine| log-prob difference of a token, and the least that an update changes."""
COLUMNS = {
    "check": "{}", "model": "{}", "ZeRO": "{}", "start s": "{:.0f}",
    "tokens/s": "{:.0f}", "vLLM alone": "{:.0f}",
    "update s": "{:.2f}", "plain loop s": "{:.2f}", "FLOPs utilisation": "{:.1%}",
    "sync s": "{:.2f}", "wake s": "{:.2f}", "send s": "{:.2f}", "offload s": "{:.2f}",
    "sent GB/s": "{:.1f}", "planned": "{}", "reserved GiB": "{:.1f}", "memory GiB": "{:.1f}",
    "mismatch": "{:.1e}", "moved": "{:.2g}", "verdict": "{}",
}  # fmt: skip
"""Of the table, each with the format of its values. Times are of the second step; ``planned`` is
the memory that preflight expects a run to need, ``reserved`` what PyTorch held in a rank, ``moved``
the mean change of a log-prob by an update."""
SYNC = {"wake s": "waking up", "send s": "sending its weights", "offload s": "leaving the GPU"}
"""Column -> what ``Agents`` call that part of a sync."""
Row = dict[str, Any]
"""A check's values by column, and under ``faults`` what is wrong with it in words."""
Buffers = Mapping[int, list[TrainingSample]]


class NotRunError(ValueError):
    """A check cannot be run here and now; the message says why."""


class TimedAgents(Agents):
    """Agents that add up the seconds for which they wait, by what is done meanwhile."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.seconds = Counter[str]()

    def _wait(self, calls: Any, doing: str, **named: Any) -> list[Any]:
        started = time.perf_counter()
        results = super()._wait(calls, doing, **named)
        self.seconds[doing] += time.perf_counter() - started  # type: ignore[assignment]
        return results


@dataclass
class Found:
    """Statistics, samples, times and faults of a society's steps."""

    device: Device = "cpu"
    seconds: dict[str, float] = field(default_factory=dict)
    """Of the start, and of the parts of the second step, by column."""
    stats: list[dict[int, UpdateStats]] = field(default_factory=list)
    """By step, then by policy."""
    buffers: Buffers = field(default_factory=dict)
    """The samples of the second step."""
    moved: list[float] = field(default_factory=list)
    """Mean change of a token's log-prob since then, after one update and after two."""
    reserved: int = 0
    memory: int = 0
    """Most bytes in use on a GPU behind a part of a step: allocators keep what they needed."""
    faults: list[str] = field(default_factory=list)
    """Faults in what this check adds to the two steps."""

    @contextmanager
    def timed(self, column: str) -> Iterator[None]:
        """Note the seconds of the block, and the memory in use behind it."""
        started = time.perf_counter()
        yield
        self.seconds[column] = time.perf_counter() - started
        self.memory = max(self.memory, gpu_bytes(self.device))

    @property
    def mismatches(self) -> list[float]:
        """In each step, the mean |policy - engine| log-prob difference of a token."""
        return [max(s.mismatch_mean for s in stats.values()) for stats in self.stats]

    def all_faults(self) -> list[str]:
        """These, and the faults of the two steps."""
        faults = [
            f"policy and engine differ by {mismatch:.4f} a token in step {step}"
            for step, mismatch in enumerate(self.mismatches, start=1)
            if not mismatch < MAX_MISMATCH
        ]
        if not self.moved[0] > MAX_MISMATCH:
            faults.append(f"an update changed a log-prob by {self.moved[0]:.4f} only")
        return faults + self.faults


def run_check(
    planned: Planned, config: Config, *, model: str, machine: Machine, peak_flops: float
) -> Row:
    """Two steps of agents as in training, and what the check adds.

    Raises EngineError when an engine fails, NotRunError before anything is started.
    """
    config, needed = fitting(config, model=model, machine=machine, what=str(planned))
    found = go_through(planned, config, model=model, device=machine.device)
    samples, seconds = list(chain(*found.buffers.values())), found.seconds
    shape = model_shape(model)
    flops = model_flops(shape, samples) / seconds["update s"] / config.policy.ranks_per_policy
    row: Row = seconds | {
        "ZeRO": f"{config.policy.zero_stage}{' offload' * bool(config.policy.adam_offload)}",
        "tokens/s": sum(len(s.response_token_ids) for s in samples) / seconds["rollout s"],
        "planned": needed.split(" (")[0],
        "reserved GiB": found.reserved / GIB,
        "memory GiB": found.memory / GIB,
        "mismatch": max(found.mismatches),
        "moved": found.moved[0],
        "faults": found.all_faults(),
    }
    if not planned.check.lora_rank:  # adapters are sent alone, and skip what weights would need
        row["FLOPs utilisation"] = flops / peak_flops / (config.cluster.cpu_threads or 1)
        num_bytes = shape.num_parameters * (2 if config.rollout.dtype == "bfloat16" else 4)
        row["sent GB/s"] = num_bytes / seconds["send s"] / 1e9
    if planned.check.is_compared:
        compare = (machine.device, model, samples, config)
        row["vLLM alone"] = in_process(vllm_tokens_per_s, *compare)
        row["plain loop s"] = in_process(plain_update_s, *compare)
    return row


def go_through(planned: Planned, config: Config, *, model: str, device: Device) -> Found:
    """Two steps, two updates more to see what the last one changed, and the check's own part."""
    check, found, models = planned.check, Found(device), [model] * config.society.num_agents
    recoveries = Recoveries(1 if check.disturbance == "kill" else 0)
    with tempfile.TemporaryDirectory(prefix="comas-check-") as folder:
        checkpoint, started = Path(folder) / "checkpoint", time.perf_counter()
        with TimedAgents(config, models=models, device=device, recoveries=recoveries) as agents:
            found.seconds["start s"] = time.perf_counter() - started
            agents.sync_weights()
            for step in (1, 2):
                if step == 2 and check.disturbance == "kill":
                    kill_an_engine()
                with found.timed("rollout s"):
                    found.buffers = sample(agents, config, planned.size, step=step)
                with found.timed("update s"):
                    found.stats.append(agents.begin_update(found.buffers, step=step)())
                agents.seconds.clear()
                with found.timed("sync s"):
                    agents.sync_weights()
                found.seconds |= {column: agents.seconds[doing] for column, doing in SYNC.items()}
            if check.disturbance == "resume":
                agents.save_checkpoint(checkpoint)
            found.moved = two_movements(agents, found.buffers)
            found.reserved = max(peak.gpu_bytes for peak in agents.memory_peaks()["ranks"])
        if check.disturbance == "resume":
            with TimedAgents(config, models=models, device=device) as agents:
                agents.load_checkpoint(checkpoint, step=2)
                found.faults += resume_faults(found.moved, two_movements(agents, found.buffers))
                agents.sync_weights()
                buffers = sample(agents, config, planned.size, step=5)
                found.stats.append(agents.begin_update(buffers, step=5)())
    if check.disturbance == "kill":
        found.faults += recovery_faults(recoveries)
    if check.has_long_samples:
        found.faults += long_faults(found.buffers, config)
    return found


def two_movements(agents: Agents, buffers: Buffers) -> list[float]:
    """Mean change of a token's log-prob since ``buffers`` were sampled, before each of two updates,
    the smaller of the agents': the second also shows what the optimiser remembered."""
    updates = [agents.begin_update(buffers, step=step)() for step in (3, 4)]
    return [min(stats.mismatch_mean for stats in update.values()) for update in updates]


# ---------------------------------------------------------------- what a check adds


def kill_an_engine() -> None:
    """End the process of the first rollout engine that is found, as the system does for memory."""
    processes = psutil.Process().children(recursive=True)
    engine = next(one for one in processes if "RolloutActor" in " ".join(command_line(one)))
    engine.kill()
    psutil.wait_procs([engine])


def recovery_faults(recoveries: Recoveries) -> list[str]:
    """A fault unless exactly one engine was started again."""
    restarts = recoveries.take_metrics(2)["recovery/engine_restarts"]
    return [] if restarts == 1 else [f"one engine was killed, and {restarts} started again"]


def resume_faults(before: list[float], after: list[float]) -> list[str]:
    """Faults where a resumed society makes other updates than the one that wrote the checkpoint."""
    return [
        f"update {step} moved a log-prob by {first:.4f}, and by {again:.4f} after a resume"
        for step, first, again in zip((3, 4), before, after, strict=True)
        if not abs(first - again) < MAX_MISMATCH * max(1.0, first)
    ]


def long_faults(buffers: Buffers, config: Config) -> list[str]:
    """A fault if no sample was long enough for its activations to be recomputed."""
    budget = config.policy.micro_batch_tokens
    assert budget is not None
    longest = max(
        len(sample.prompt_token_ids) + len(sample.response_token_ids)
        for sample in chain(*buffers.values())
    )
    return [] if longest > budget else [f"the longest sample has {longest} tokens of {budget}"]


# ---------------------------------------------------------------- memory, samples


def fitting(config: Config, *, model: str, machine: Machine, what: str) -> tuple[Config, str]:
    """``config`` with sharding and threads settled, and the memory that it needs by the plan: of
    the machine on a CPU, else of the GPU during an update. Raises NotRunError."""
    shapes = [model_shape(model)] * config.num_policies
    config, _ = settle_threads(config, shapes=shapes, machine=machine)
    try:
        config, line = settle_sharding(config, shapes=shapes, machine=machine)
    except ValueError as error:
        raise NotRunError(str(error)) from error
    need = memory_needs(config, shapes, machine)[0]
    if need.fault is not None:
        raise NotRunError(need.fault)
    sys.stderr.write(f"{what}: {line}\n")
    return config, need.needed


def sample(agents: Agents, config: Config, size: Size, *, step: int) -> Buffers:
    """Ask every agent everything at once, with prompts of eight lengths; policy -> its buffer, half
    of it rewarded."""
    most = config.rollout.max_prompt_tokens // MOST_TOKENS_OF_A_SENTENCE

    async def ask(agent: int, number: int) -> TrainingSample:
        repeats = max(most * (1 + number % 8) // 8, 1)
        request = Request(
            agent,
            f"What is {number} + {step}? " * repeats,
            turn=(f"check{number}", "r0.s0"),
            role="solution",
            seed=1000 * step + number,
        )
        generation = await agents.generate(request)
        assert generation is not None, "the prompt is over the limit"
        return TrainingSample(
            agent_index=agent,
            question_id="check",
            discussion_id="check",
            turn_id="r0.s0",
            round_index=0,
            role="solution",
            prompt_token_ids=generation.prompt_token_ids,
            response_token_ids=generation.response_token_ids,
            rollout_logprobs=generation.rollout_logprobs,
            reward=float(number % 2),
        )

    async def ask_all() -> list[TrainingSample]:
        pairs = product(range(config.society.num_agents), range(size.num_requests))
        return await asyncio.gather(*(ask(*pair) for pair in pairs))

    samples = run(ask_all())
    return {
        agent: [sample for sample in samples if sample.agent_index == agent]
        for agent in range(config.society.num_agents)
    }
