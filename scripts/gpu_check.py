"""Two steps of agents on this machine's GPU, checked and timed; started by scripts/gpu_check.sh."""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from comas.config.schema import Cluster, Config, Lora, Optimization, Policy, Rollout, Society
from comas.engines.cluster.agents import Agents
from comas.engines.cluster.supervision import EngineError
from comas.preflight.checks import cpu_memory_need, gpu_memory_needs
from comas.preflight.machine import Machine, describe_machine, read_gpus, why_unusable
from comas.preflight.memory import GIB, ModelShape, adapter_parameters, model_shape
from comas.preflight.needs import Need
from comas.preflight.sharding import settle_sharding
from comas.quickstart.tokenizers import CHAT_FORMATS, build_tokenizer
from comas.terminal import start_command
from comas.types import Device, Generation, TrainingSample, UpdateStats
from scripts.benchmarks import read_arguments
from scripts.gpu_measures import Clock, matrix_flops, memory_peak, model_flops

if TYPE_CHECKING:
    from transformers import PretrainedConfig

MAX_MISMATCH = 0.02
"""Mean |policy - engine| log-prob difference of a token, and the least that an update changes."""
MAX_PROMPT_TOKENS = 512
ADAPTER_RATE = 10
"""Adapters learn at so many times the rate of whole models."""


@dataclass(frozen=True)
class Size:
    """A Qwen2 model, and what it is asked."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    vocab_size: int
    num_requests: int = 128
    """For each agent."""
    response_tokens: int = 512
    learning_rate: float = 1e-4


SIZES = {
    "tiny": Size(128, 352, 4, 4, 2, 1024, 12, 24, 1e-3),
    "0.5b": Size(896, 4864, 24, 14, 2, 151936),
    "3b": Size(2048, 11008, 36, 16, 2, 151936),
}


@dataclass
class Arguments:
    device: str = "cuda"
    size: str = "0.5b,3b"
    """Names in ``SIZES``."""
    agents: str = "1,2"
    lora_rank: str = "0"
    """Of LoRA adapters over one model; 0: every agent is a model of its own."""
    requests: int = 0
    """For each agent; 0: as many as the size names."""
    response_tokens: int = 0
    """Of each request, at most; 0: as many as the size names."""


@dataclass(frozen=True)
class Row:
    """What a society of one size and number of agents showed."""

    size: str
    num_agents: int
    lora_rank: int
    zero: str
    start_s: float
    tokens_per_s: float
    """Sampled in the second step by all agents together."""
    update_s: float
    """Of the second step, with the phases around it."""
    utilisation: float
    """Of the floating-point operations per second of a plain matrix product."""
    sync_s: float
    planned: str
    """What preflight expects a run to need, which also keeps a copy for its checkpoints."""
    memory_gib: float
    mismatch: tuple[float, ...]
    """Of each step, the larger of the agents'."""
    movement: float
    """Mean change of a token's log-prob by the last update, the smaller of the agents'."""

    @property
    def faults(self) -> list[str]:
        """What is wrong with it."""
        where = society_in_words(self.size, self.num_agents, self.lora_rank)
        faults = [
            f"{where}: policy and engine differ by {mismatch:.4f} a token in step {step}"
            for step, mismatch in enumerate(self.mismatch, start=1)
            if not mismatch < MAX_MISMATCH
        ]
        if not self.movement > MAX_MISMATCH:
            faults.append(f"{where}: an update changed a log-prob by {self.movement:.4f} only")
        return faults


class DoesNotFitError(ValueError):
    """By the memory plan, this machine is too small for a society."""


def main(arguments: Arguments) -> int:
    """Check every size with every number of agents; returns the exit status."""
    sizes, counts = arguments.size.split(","), arguments.agents.split(",")
    ranks = arguments.lora_rank.split(",")
    is_number = all(number.isdigit() for number in (*counts, *ranks))
    if set(sizes) - set(SIZES) or not is_number or "0" in counts:
        sys.stderr.write(
            f"error: size= takes {', '.join(SIZES)}; agents= and lora_rank= take numbers\n"
        )
        return 2
    if arguments.device not in ("cuda", "cpu"):
        sys.stderr.write("error: device= takes cuda or cpu\n")
        return 2
    gpus = read_gpus()
    if arguments.device == "cuda" and gpus.num_usable == 0:
        sys.stderr.write(
            f"error: {why_unusable(gpus)}. On a CPU the same steps are taken by: "
            "bash scripts/gpu_check.sh device=cpu size=tiny\n"
        )
        return 2
    device: Device = "cuda" if arguments.device == "cuda" else "cpu"
    start_command("comas")
    rows: list[Row] = []
    faults: list[str] = []
    peak = matrix_flops(device)
    with tempfile.TemporaryDirectory(prefix="comas-check-") as folder:
        for name, count, rank in itertools.product(sizes, map(int, counts), map(int, ranks)):
            size = asked_size(SIZES[name], arguments)
            model = Path(folder) / name
            if not model.exists():
                save_model(model, size, device=device)
            config = society_config(size, count, device=device, lora_rank=rank)
            try:
                row = check(name, size, config, model=str(model), device=device, peak_flops=peak)
                rows.append(row)
                faults += row.faults
            except DoesNotFitError as error:
                sys.stdout.write(f"left out: {society_in_words(name, count, rank)}: {error}\n")
            except EngineError as error:
                faults.append(f"{society_in_words(name, count, rank)}: {error}")
    sys.stdout.write(report(rows, faults, device=device, peak_flops=peak))
    return 0 if rows and not faults else 1


def asked_size(size: Size, arguments: Arguments) -> Size:
    """``size`` with the requests and response tokens of the command line."""
    return replace(
        size,
        num_requests=arguments.requests or size.num_requests,
        response_tokens=arguments.response_tokens or size.response_tokens,
    )


def society_in_words(size: str, num_agents: int, lora_rank: int) -> str:
    """``("0.5b", 2, 16) -> "0.5b with 2 agents, LoRA of rank 16"``."""
    return f"{size} with {num_agents} agents{f', LoRA of rank {lora_rank}' if lora_rank else ''}"


def check(
    name: str, size: Size, config: Config, *, model: str, device: Device, peak_flops: float
) -> Row:
    """Two steps of agents that share one GPU, and a third update to see what the second one
    changed.

    Raises EngineError when an engine fails, DoesNotFitError before anything is started.
    """
    num_agents, shape = config.society.num_agents, model_shape(model)
    lora_rank = config.policy.lora.rank or 0
    machine = describe_machine(device)
    try:
        config, line = settle_sharding(config, models=[model], machine=machine)
    except ValueError as error:
        raise DoesNotFitError(str(error)) from error
    planned = planned_memory(config, shape, machine)
    if planned.fault is not None:
        raise DoesNotFitError(planned.fault)
    sys.stderr.write(f"{society_in_words(name, num_agents, lora_rank)}: {line}\n")
    clock = Clock()
    with (
        memory_peak(device) as peak,
        Agents(config, models=[model] * num_agents, device=device) as agents,
    ):
        clock.lap("start")
        agents.sync_weights()
        stats: list[dict[int, UpdateStats]] = []
        buffers: dict[int, list[TrainingSample]] = {}
        for step in (1, 2):
            clock.lap("")
            buffers = dict(enumerate(sample(agents, num_agents, size=size, step=step)))
            clock.lap("rollout")
            stats.append(agents.update(buffers, step=step))
            clock.lap("update")
            agents.sync_weights()
            clock.lap("sync")
        moved = agents.update(buffers, step=3)
    flops = sum(model_flops(shape, buffer) for buffer in buffers.values())
    num_tokens = sum(len(s.response_token_ids) for buffer in buffers.values() for s in buffer)
    return Row(
        size=name,
        num_agents=num_agents,
        lora_rank=lora_rank,
        zero=f"{config.policy.zero_stage}{' offload' if config.policy.adam_offload else ''}",
        start_s=clock.seconds["start"],
        tokens_per_s=num_tokens / clock.seconds["rollout"],
        update_s=clock.seconds["update"],
        utilisation=flops / clock.seconds["update"] / peak_flops,
        sync_s=clock.seconds["sync"],
        planned=planned.needed.split(" (")[0],
        memory_gib=peak.bytes / GIB,
        mismatch=tuple(max(s.mismatch_mean for s in of_step.values()) for of_step in stats),
        movement=min(s.mismatch_mean for s in moved.values()),
    )


def planned_memory(config: Config, shape: ModelShape, machine: Machine) -> Need:
    """Of the machine on a CPU, else of the GPU during an update."""
    num_policies = config.num_policies
    if machine.device == "cuda":
        return gpu_memory_needs(config, [shape] * num_policies, machine)[0]
    is_whole = config.policy.lora.rank is None
    trained = shape.num_parameters if is_whole else adapter_parameters(shape, config)
    return cpu_memory_need(
        config,
        sizes=[shape.num_parameters] * num_policies,
        trained=[trained] * num_policies,
        host_bytes=machine.host_bytes,
    )


def society_config(size: Size, num_agents: int, *, device: Device, lora_rank: int) -> Config:
    """A policy for each agent, all of them on one GPU, as in training; with a LoRA rank they share
    one engine and one trainer."""
    num_sharers = 1 if lora_rank else num_agents
    dtype = "bfloat16" if device == "cuda" else "float32"
    return Config(
        society=Society(num_agents=num_agents),
        rollout=Rollout(
            engines_per_policy=1,
            dtype=dtype,
            max_prompt_tokens=MAX_PROMPT_TOKENS,
            max_response_tokens=size.response_tokens,
            # The trainer of adapters does not leave the GPU to the engine.
            gpu_memory_utilization=0.4 if lora_rank else 0.8 / num_agents,
        ),
        policy=Policy(
            ranks_per_policy=1,
            dtype=dtype,
            micro_batch_tokens=8192,
            lora=Lora(rank=lora_rank or None, alpha=2 * max(lora_rank, 1)),
        ),
        optimization=Optimization(
            learning_rate=size.learning_rate * (ADAPTER_RATE if lora_rank else 1),
            warmup_steps=0,
            train_batch_size=None,
        ),
        cluster=Cluster(
            device=device,
            gpus_per_policy=1,
            policies_per_gpu=num_sharers,
            start_timeout_s=1800,
            call_timeout_s=1800,
        ),
    )


def save_model(folder: Path, size: Size, *, device: Device) -> None:
    """Write a random model with a tokenizer and chat template, in Hugging Face format."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    tokenizer = build_tokenizer(CHAT_FORMATS["qwen2"])
    config = model_config(size, dtype="bfloat16" if device == "cuda" else "float32")
    config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    AutoModelForCausalLM.from_config(config, dtype=config.dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def model_config(size: Size, *, dtype: str) -> PretrainedConfig:
    """The configuration of a Qwen2 model of ``size``."""
    from transformers import Qwen2Config

    return Qwen2Config(
        vocab_size=size.vocab_size,
        hidden_size=size.hidden_size,
        intermediate_size=size.intermediate_size,
        num_hidden_layers=size.num_layers,
        num_attention_heads=size.num_heads,
        num_key_value_heads=size.num_kv_heads,
        max_position_embeddings=MAX_PROMPT_TOKENS + size.response_tokens,
        tie_word_embeddings=True,
        dtype=dtype,
    )


def sample(agents: Agents, num_agents: int, *, size: Size, step: int) -> list[list[TrainingSample]]:
    """Ask every agent everything at once; a buffer for each, half of it rewarded."""

    async def ask(agent: int, request: int) -> TrainingSample:
        generation = await agents.generate(
            agent,
            f"What is {request} + {step}? " * (1 + request % 8),
            turn=(f"check{request}", "r0.s0"),
            seed=1000 * step + request,
        )
        assert generation is not None
        return training_sample(agent, generation, reward=float(request % 2))

    async def ask_all() -> list[list[TrainingSample]]:
        return [
            list(buffer)
            for buffer in await asyncio.gather(
                *(
                    asyncio.gather(*(ask(agent, request) for request in range(size.num_requests)))
                    for agent in range(num_agents)
                )
            )
        ]

    return asyncio.run(ask_all())


def training_sample(agent: int, generation: Generation, *, reward: float) -> TrainingSample:
    """A sampled response with its reward."""
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
        reward=reward,
    )


def report(rows: Sequence[Row], faults: Sequence[str], *, device: Device, peak_flops: float) -> str:
    """The table in Markdown, then what is wrong."""
    heads = (
        "model", "agents", "LoRA rank", "ZeRO", "start s", "tokens/s", "update s",
        "FLOPs utilisation", "sync s", "planned", "memory GiB", "mismatch", "moved",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = (
            row.size, str(row.num_agents), str(row.lora_rank or "-"), row.zero,
            f"{row.start_s:.0f}",
            f"{row.tokens_per_s:.0f}", f"{row.update_s:.2f}", f"{row.utilisation:.1%}",
            f"{row.sync_s:.2f}", row.planned, f"{row.memory_gib:.1f}",
            " ".join(f"{mismatch:.1e}" for mismatch in row.mismatch), f"{row.movement:.2g}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines.append(f"matrix product on {device}: {peak_flops / 1e12:.3g} TFLOP/s")
    lines += [f"fault: {fault}" for fault in faults] or ["all checks passed"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(read_arguments(Arguments, about=__doc__ or "")))
