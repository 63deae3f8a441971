"""One check: a society takes two steps as in training, and goes through what the check adds."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

import psutil

from comas.config.schema import Config
from comas.engines.cluster.agents import Agents
from comas.engines.cluster.supervision import Recoveries
from comas.preflight.machine import Machine
from comas.preflight.memory import GIB, memory_needs, model_shape, settle_sharding
from comas.quickstart.tokenizers import CHAT_FORMATS, build_tokenizer
from comas.run.metrics.step import Stopwatch
from comas.types import Device, Request, TrainingSample, UpdateStats
from comas.utils.processes import command_line
from scripts.gpu_check.checks import PROMPT_TOKENS, Planned, Size
from scripts.gpu_check.measures import memory_peak, model_flops

MOST_TOKENS_OF_A_SENTENCE = 12
"""Most tokens of a sentence of which ``sample`` makes prompts."""
MAX_MISMATCH = 0.02
"""Mean |policy - engine| log-prob difference of a token, and the least that an update changes."""
HEADS = (
    "check", "model", "ZeRO", "start s", "tokens/s", "update s", "FLOPs utilisation", "sync s",
    "planned", "reserved GiB", "memory GiB", "mismatch", "moved", "verdict",
)  # fmt: skip
"""Of the table, in the order of ``run_check``'s cells: ``planned`` is the memory that preflight
expects a run to need, ``reserved`` what PyTorch held in a rank, ``moved`` the mean change of a
log-prob by an update."""
Buffers = Mapping[int, list[TrainingSample]]


class DoesNotFitError(ValueError):
    """The memory plan says that this machine is too small for a society."""


class Result(NamedTuple):
    """A row of the table, and what is wrong with it in words."""

    row: str
    faults: list[str]


@dataclass
class Found:
    """Statistics, samples, times and faults of a society's steps."""

    clock: Stopwatch = field(default_factory=Stopwatch)
    stats: list[dict[int, UpdateStats]] = field(default_factory=list)
    """By step, then by policy."""
    buffers: Buffers = field(default_factory=dict)
    """The samples of the second step."""
    moved: list[float] = field(default_factory=list)
    """Mean change of a token's log-prob since then, after one update and after two."""
    reserved: int = 0
    faults: list[str] = field(default_factory=list)
    """Faults in what this check adds to the two steps."""

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
) -> Result:
    """Two steps of agents as in training, and what the check adds.

    Raises EngineError when an engine fails, DoesNotFitError before anything is started.
    """
    config, needed = fitting(config, model=model, machine=machine, what=str(planned))
    with memory_peak(machine.device) as peak:
        found = go_through(planned, config, model=model, device=machine.device)
    samples, seconds = list(chain(*found.buffers.values())), found.clock.times()
    flops = model_flops(model_shape(model), samples) / seconds["time/update"]
    num_tokens = sum(len(sample.response_token_ids) for sample in samples)
    faults = found.all_faults()
    offload = " offload" * bool(config.policy.adam_offload)
    cells = [
        planned.name,
        planned.size_name,
        f"{config.policy.zero_stage}{offload}",
        f"{seconds['time/start']:.0f}",
        f"{num_tokens / seconds['time/rollout']:.0f}",
        f"{seconds['time/update']:.2f}",
        f"{flops / peak_flops / config.policy.ranks_per_policy:.1%}",
        f"{seconds['time/sync']:.2f}",
        needed.split(" (")[0],
        f"{found.reserved / GIB:.1f}",
        f"{peak.bytes / GIB:.1f}",
        " ".join(f"{mismatch:.1e}" for mismatch in found.mismatches),
        f"{found.moved[0]:.2g}",
        "FAULT" if faults else "ok",
    ]
    return Result(in_table(cells), [f"{planned}: {fault}" for fault in faults])


def in_table(cells: Iterable[str]) -> str:
    """``| a | b |``"""
    return f"| {' | '.join(cells)} |"


def failed_row(planned: Planned) -> str:
    """The row of a check that an engine's failure ended."""
    return in_table([planned.name, planned.size_name, *[""] * (len(HEADS) - 3), "FAULT"])


def go_through(planned: Planned, config: Config, *, model: str, device: Device) -> Found:
    """Two steps, two updates more to see what the last one changed, and the check's own part."""
    check, found, models = planned.check, Found(), [model] * config.society.num_agents
    recoveries = Recoveries(1 if check.disturbance == "kill" else 0)
    with tempfile.TemporaryDirectory(prefix="comas-check-") as folder:
        checkpoint = Path(folder) / "checkpoint"
        with Agents(config, models=models, device=device, recoveries=recoveries) as agents:
            found.clock.lap("start")
            take_steps(agents, planned, config, found=found)
            if check.disturbance == "resume":
                for part in agents.save_checkpoint(checkpoint):
                    part.result(timeout=config.cluster.call_timeout_s)
            found.moved = two_movements(agents, found.buffers)
            found.reserved = agents.reserved_peak()
        if check.disturbance == "resume":
            with Agents(config, models=models, device=device) as agents:
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


def take_steps(agents: Agents, planned: Planned, config: Config, *, found: Found) -> None:
    """Two of them; before the second, an engine may be killed."""
    agents.sync_weights()
    for step in (1, 2):
        if step == 2 and planned.check.disturbance == "kill":
            kill_an_engine()
        found.clock.lap("")
        found.buffers = sample(agents, config, planned.size, step=step)
        found.clock.lap("rollout")
        found.stats.append(agents.begin_update(found.buffers, step=step)())
        found.clock.lap("update")
        agents.sync_weights()
        found.clock.lap("sync")


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


# ---------------------------------------------------------------- memory, models, samples


def fitting(config: Config, *, model: str, machine: Machine, what: str) -> tuple[Config, str]:
    """``config`` with its sharding settled, and the memory that it needs by the plan: of the
    machine on a CPU, else of the GPU during an update. Raises DoesNotFitError."""
    shapes = [model_shape(model)] * config.num_policies
    try:
        config, line = settle_sharding(config, shapes=shapes, machine=machine)
    except ValueError as error:
        raise DoesNotFitError(str(error)) from error
    need = memory_needs(config, shapes, machine)[0]
    if need.fault is not None:
        raise DoesNotFitError(need.fault)
    sys.stderr.write(f"{what}: {line}\n")
    return config, need.needed


def save_model(folder: Path, size: Size, *, device: Device) -> None:
    """Write a random Qwen2 model with a tokenizer and chat template, for which the vocabulary may
    have to grow, in Hugging Face format."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    torch.manual_seed(0)
    tokenizer = build_tokenizer(CHAT_FORMATS["qwen2"])
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=max(size.vocab_size, len(tokenizer)),
        hidden_size=size.hidden_size,
        intermediate_size=size.intermediate_size,
        num_hidden_layers=size.num_layers,
        num_attention_heads=size.num_heads,
        num_key_value_heads=size.num_kv_heads,
        max_position_embeddings=max(PROMPT_TOKENS, size.long_prompt_tokens) + size.response_tokens,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="bfloat16" if device == "cuda" else "float32",
    )
    AutoModelForCausalLM.from_config(config, dtype=config.dtype).save_pretrained(folder)


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

    samples = asyncio.run(ask_all())
    return {
        agent: [sample for sample in samples if sample.agent_index == agent]
        for agent in range(config.society.num_agents)
    }
