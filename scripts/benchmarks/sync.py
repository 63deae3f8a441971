"""A weight sync, policy to rollout engines on the CPU, against memcpy of the same bytes.

The real engines under Ray serve random Qwen2-style models in float32. Each repeat times one
``Agents.sync_weights()``, then one copy of all parameters of the model, on one thread, into
memory that has been written before. What counts is their ratio; at 0.4 M parameters, where
calls outweigh bytes, the seconds.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from comas.config.schema import Cluster, Config, Policy, Rollout, Society
from comas.engines.cluster.agents import Agents
from scripts.benchmarks._turns import Ratio, Repeated, Report, timed
from scripts.command import read_arguments
from scripts.random_models import qwen2_config, save_random_model

MODELS = {
    "0.4M": partial(qwen2_config, hidden_size=96, num_layers=3, num_heads=3, vocab_size=1024),
    "98M": partial(qwen2_config, hidden_size=768, num_layers=10, num_heads=12, vocab_size=28_000),
}


@dataclass
class Arguments(Repeated):
    sizes: str = "0.4M,98M"
    engines: int = 1
    """Rollout engines of the policy."""
    ranks: int = 1
    """Ranks that train it."""
    zero_stage: int = 3
    tied: bool = True
    """Whether the embeddings are also the output layer."""
    repeats: int = 7


def main(arguments: Arguments) -> None:
    """Measure, and print the ratios."""
    report = Report(arguments)
    for size in arguments.sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            model = save_random_model(Path(folder), MODELS[size](is_tied=arguments.tied))
            weights = [parameter.detach() for parameter in model.parameters()]
            _compare(size, folder, weights, arguments, report)
    report.end()


def _compare(
    size: str, folder: str, weights: list[torch.Tensor], arguments: Arguments, report: Report
) -> None:
    torch.set_num_threads(1)
    copies = [weight.clone() for weight in weights]

    def copy() -> None:
        for own, weight in zip(copies, weights, strict=True):
            own.copy_(weight)

    config = small_config(
        num_engines=arguments.engines, num_ranks=arguments.ranks, zero_stage=arguments.zero_stage
    )
    with Agents(config, models=[folder], device="cpu") as agents:
        report.compare(
            f"{size}: {sum(weight.numel() for weight in weights) / 1e6:.1f} M parameters, "
            f"{sum(weight.nbytes for weight in weights) / 2**20:.1f} MiB, "
            f"{'tied' if arguments.tied else 'untied'}, ranks: {arguments.ranks} "
            f"(ZeRO-{arguments.zero_stage}), engines: {arguments.engines}",
            {"sync": agents.sync_weights, "memcpy": copy},
            ratios=[Ratio("sync", "memcpy")],
            num_warm_ups=2,  # memory that both sides use again
            measure=timed,
        )


def small_config(
    *, num_agents: int = 1, num_engines: int = 1, num_ranks: int = 1, zero_stage: int
) -> Config:
    """The configuration of small agents on a CPU, each a policy of its own."""
    return Config(
        society=Society(num_agents=num_agents),
        rollout=Rollout(
            dtype="float32",
            engines_per_policy=num_engines,
            max_prompt_tokens=128,
            max_response_tokens=64,
            cpu_kv_cache_mib=32,
            max_num_seqs=32,
        ),
        policy=Policy(
            dtype="float32",
            ranks_per_policy=num_ranks,
            zero_stage=zero_stage,
            adam_offload=False if zero_stage == 0 else None,
            gradient_checkpointing=False,
        ),
        cluster=Cluster(device="cpu"),
    )


if __name__ == "__main__":
    main(read_arguments(Arguments, about=__doc__))
