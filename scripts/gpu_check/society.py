"""A check: a society takes two training steps, and what the check adds."""

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

from comas.config.schema import Config
from comas.engines.cluster.agents import Agents
from comas.policy_optimization.update_stats import UpdateStats
from comas.preflight.machine import Machine
from comas.preflight.memory import GIB, model_shape
from comas.preflight.sharding import check_memory, settle_sharding, settle_threads
from comas.types import Device, Request, TrainingSample
from comas.utils.interrupts import run
from scripts.gpu_check.baselines import plain_update_s, vllm_tokens_per_s
from scripts.gpu_check.checks import Planned, Size
from scripts.gpu_check.measures import gpu_bytes, isolated, model_flops
from scripts.gpu_check.profiling import profile_update

MOST_TOKENS_OF_A_SENTENCE = 12
"""Maximum tokens of the sentence that ``sample`` repeats in prompts."""
MAX_MISMATCH = 0.02
"""Limit of the mean |policy - engine| log-prob difference; an update must change more."""
COLUMNS = {
    "check": "{}", "model": "{}", "ZeRO": "{}", "start s": "{:.0f}",
    "tokens/s": "{:.0f}", "vLLM alone": "{:.0f}",
    "update s": "{:.2f}", "plain loop s": "{:.2f}", "FLOPs utilisation": "{:.1%}",
    "sync s": "{:.2f}", "wake s": "{:.2f}", "send s": "{:.2f}", "offload s": "{:.2f}",
    "sent GB/s": "{:.1f}", "planned": "{}", "reserved GiB": "{:.1f}", "memory GiB": "{:.1f}",
    "mismatch": "{:.1e}", "moved": "{:.2g}", "verdict": "{}",
}  # fmt: skip
"""Column of the table -> format. Times are of the second step; ``planned`` is the memory that the
preflight expects, ``reserved`` that of PyTorch in a rank, ``moved`` the mean change of a log-prob
by an update."""
SYNC = {"wake s": "waking up", "send s": "sending its weights", "offload s": "leaving the GPU"}
"""Column -> name of that part of a sync in ``Agents``."""
Row = dict[str, Any]
"""A check's values by column, and its ``faults`` in words."""
Buffers = Mapping[int, list[TrainingSample]]


class NotRunError(ValueError):
    """A check cannot be run here; the message says why."""


class TimedAgents(Agents):
    """Agents that sum up the seconds spent waiting, by activity."""

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
    """Column -> seconds, of the start and the parts of the second step."""
    stats: list[dict[int, UpdateStats]] = field(default_factory=list)
    """By step, then by policy."""
    buffers: Buffers = field(default_factory=dict)
    """The samples of the second step."""
    moved: list[float] = field(default_factory=list)
    """Mean change of a token's log-prob since then, after one and after two updates."""
    reserved: int = 0
    memory: int = 0
    """Maximum bytes in use on a GPU after a part of a step."""
    faults: list[str] = field(default_factory=list)
    """Faults in what this check adds."""
    profile: Row = field(default_factory=dict)
    """See ``profile_update``."""

    @contextmanager
    def timed(self, column: str) -> Iterator[None]:
        """Record the seconds of the block, and the memory in use after it."""
        started = time.perf_counter()
        yield
        self.seconds[column] = time.perf_counter() - started
        self.memory = max(self.memory, gpu_bytes(self.device))

    @property
    def mismatches(self) -> list[float]:
        """The mean |policy - engine| log-prob difference in each step."""
        return [max(s.mismatch_mean for s in stats.values()) for stats in self.stats]

    def all_faults(self) -> list[str]:
        """Return all faults, including those of the two steps."""
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
    """Run a check; return its row. Raises EngineError when an engine fails, NotRunError when
    nothing was started."""
    config, needed = fitting(config, model=model, machine=machine, what=str(planned))
    found = go_through(planned, config, model=model, device=machine.device)
    samples, seconds = list(chain(*found.buffers.values())), found.seconds
    shape = model_shape(model)
    flops = model_flops(shape, samples) / seconds["update s"] / config.policy.ranks_per_policy
    row: Row = (
        seconds
        | {
            "ZeRO": f"{config.policy.zero_stage}{' offload' * bool(config.policy.adam_offload)}",
            "tokens/s": sum(len(s.response_token_ids) for s in samples) / seconds["rollout s"],
            "planned": needed.split(" (")[0],
            "reserved GiB": found.reserved / GIB,
            "memory GiB": found.memory / GIB,
            "mismatch": max(found.mismatches),
            "moved": found.moved[0],
            "faults": found.all_faults(),
        }
        | found.profile
    )
    if not planned.check.lora_rank:  # adapters skip most of this work
        row["FLOPs utilisation"] = flops / peak_flops / (config.cluster.cpu_threads or 1)
        num_bytes = shape.num_parameters * (2 if config.rollout.dtype == "bfloat16" else 4)
        row["sent GB/s"] = num_bytes / seconds["send s"] / 1e9
    if planned.check.is_compared:
        compare = (machine.device, model, samples, config)
        row["vLLM alone"] = isolated(vllm_tokens_per_s, *compare)
        row["plain loop s"] = isolated(plain_update_s, *compare)
    return row


def go_through(planned: Planned, config: Config, *, model: str, device: Device) -> Found:
    """Take two steps, then two updates to see what the last one changed, and the check's part."""
    check, found, models = planned.check, Found(device), [model] * config.society.num_agents
    with tempfile.TemporaryDirectory(prefix="comas-check-") as folder:
        checkpoint, started = Path(folder) / "checkpoint", time.perf_counter()
        with TimedAgents(config, models=models, device=device) as agents:
            found.seconds["start s"] = time.perf_counter() - started
            agents.sync_weights()
            for step in (1, 2):
                with found.timed("rollout s"):
                    found.buffers = sample(agents, config, planned.size, step=step)
                with found.timed("update s"):
                    found.stats.append(agents.begin_update(found.buffers, step=step)())
                agents.seconds.clear()
                with found.timed("sync s"):
                    agents.sync_weights()
                found.seconds |= {column: agents.seconds[doing] for column, doing in SYNC.items()}
            if check.is_resumed:
                agents.save_checkpoint(checkpoint)
            found.moved = two_movements(agents, found.buffers)
            found.reserved = max(peak.gpu_bytes for peak in agents.memory_peaks()["ranks"])
            if check.is_compared:
                [rank] = agents._ranks
                call = rank.actor.__ray_call__.remote(profile_update, found.buffers, 5)
                [found.profile] = agents._wait({rank: call}, "profiling an update")
        if check.is_resumed:
            with TimedAgents(config, models=models, device=device) as agents:
                agents.load_checkpoint(checkpoint, step=2)
                found.faults += resume_faults(found.moved, two_movements(agents, found.buffers))
                agents.sync_weights()
                buffers = sample(agents, config, planned.size, step=5)
                found.stats.append(agents.begin_update(buffers, step=5)())
    if check.has_long_samples:
        found.faults += long_faults(found.buffers, config)
    return found


def two_movements(agents: Agents, buffers: Buffers) -> list[float]:
    """Return the mean change of a token's log-prob since ``buffers`` were sampled, before each of
    two updates (the agents' minimum). The second depends on the optimiser's state."""
    updates = [agents.begin_update(buffers, step=step)() for step in (3, 4)]
    return [min(stats.mismatch_mean for stats in update.values()) for update in updates]


def resume_faults(before: list[float], after: list[float]) -> list[str]:
    """Return faults if a resumed society's updates differ from the original's."""
    return [
        f"update {step} moved a log-prob by {first:.4f}, and by {again:.4f} after a resume"
        for step, first, again in zip((3, 4), before, after, strict=True)
        if not abs(first - again) < MAX_MISMATCH * max(1.0, first)
    ]


def long_faults(buffers: Buffers, config: Config) -> list[str]:
    """Return a fault if no sample was long enough for recomputed activations."""
    budget = config.policy.micro_batch_tokens
    longest = max(
        len(sample.prompt_token_ids) + len(sample.response_token_ids)
        for sample in chain(*buffers.values())
    )
    return [] if longest > budget else [f"the longest sample has {longest} tokens of {budget}"]


def fitting(config: Config, *, model: str, machine: Machine, what: str) -> tuple[Config, str]:
    """Settle sharding and threads; return the config and its planned memory (of the GPU during an
    update, or of the machine on a CPU). Raises NotRunError."""
    shapes = [model_shape(model)] * config.num_policies
    config, _ = settle_threads(config, shapes=shapes, machine=machine)
    try:
        config, line = settle_sharding(config, shapes=shapes, machine=machine)
    except ValueError as error:
        raise NotRunError(str(error)) from error
    need = check_memory(config, shapes, machine)[0]
    if need.error is not None:
        raise NotRunError(need.error)
    sys.stderr.write(f"{what}: {line}\n")
    return config, need.needed


def sample(agents: Agents, config: Config, size: Size, *, step: int) -> Buffers:
    """Send all requests at once, with prompts of eight lengths; return policy -> buffer, half of it
    rewarded."""
    most = config.rollout.max_prompt_tokens // MOST_TOKENS_OF_A_SENTENCE

    async def ask(agent: int, number: int) -> TrainingSample:
        request = Request(
            agent,
            f"What is {number} + {step}? " * max(most * (1 + number % 8) // 8, 1),
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
