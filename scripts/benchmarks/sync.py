"""A weight sync, policy to rollout engines on the CPU, against memcpy of the same bytes.

The real engines under Ray serve random Qwen2-style models in float32. Each repeat times one
``Agents.sync_weights()``, then one copy of all parameters of the model, on one thread, into
memory that has been written before. What counts is their ratio; at 0.4 M parameters, where
calls outweigh bytes, the seconds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from comas.config.schema import Cluster, Config, Policy, Rollout, Society
from comas.engines.cluster.agents import Agents
from comas.quickstart.tokenizers import CHAT_FORMATS, build_tokenizer
from scripts.benchmarks import read_arguments

SHAPES = {
    "0.4M": {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 3},
    "98M": {"hidden_size": 768, "num_hidden_layers": 10, "num_attention_heads": 12},
}
VOCABULARIES = {"0.4M": 1024, "98M": 28_000}


@dataclass
class Arguments:
    sizes: str = "0.4M,98M"
    engines: int = 1
    """Rollout engines of the policy."""
    ranks: int = 1
    """Ranks that train it."""
    zero_stage: int = 3
    tied: bool = True
    """Whether the embeddings are also the output layer."""
    repeats: int = 7


@dataclass(frozen=True)
class Repeat:
    sync_s: float
    memcpy_s: float


def main(arguments: Arguments) -> None:
    """Measure, and print the ratios."""
    for size in arguments.sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            weights = save_model(Path(folder), size, is_tied=arguments.tied)
            repeats = list(_measure(folder, weights, arguments))
        sys.stdout.write(_report(size, weights, arguments, repeats) + "\n")


def _measure(folder: str, weights: list[torch.Tensor], arguments: Arguments) -> Iterator[Repeat]:
    torch.set_num_threads(1)
    copies = [weight.clone() for weight in weights]
    with Agents(_config(arguments), models=[folder], device="cpu") as agents:
        for _ in range(2):  # memory that both sides use again
            agents.sync_weights()
        for _ in range(arguments.repeats):
            started = time.perf_counter()
            agents.sync_weights()
            synced = time.perf_counter()
            for copy, weight in zip(copies, weights, strict=True):
                copy.copy_(weight)
            yield Repeat(synced - started, time.perf_counter() - synced)


def _report(
    size: str, weights: list[torch.Tensor], arguments: Arguments, repeats: list[Repeat]
) -> str:
    num_parameters = sum(weight.numel() for weight in weights)
    num_bytes = sum(weight.nbytes for weight in weights)
    ratios = [repeat.sync_s / repeat.memcpy_s for repeat in repeats]
    seconds = [repeat.sync_s for repeat in repeats]
    return (
        f"{size}: {num_parameters / 1e6:.1f} M parameters, {num_bytes / 2**20:.1f} MiB, "
        f"{'tied' if arguments.tied else 'untied'}, ranks: {arguments.ranks} "
        f"(ZeRO-{arguments.zero_stage}), engines: {arguments.engines}; "
        f"median of {len(repeats)} (least to most)\n"
        f"  sync   {median(seconds):8.4f} s ({min(seconds):.4f} to {max(seconds):.4f})\n"
        f"  memcpy {median(repeat.memcpy_s for repeat in repeats):8.4f} s\n"
        f"  sync / memcpy: {median(ratios):.1f} x ({min(ratios):.1f} to {max(ratios):.1f})"
    )


def _config(arguments: Arguments) -> Config:
    return Config(
        society=Society(num_agents=1),
        rollout=Rollout(
            dtype="float32",
            engines_per_policy=arguments.engines,
            max_prompt_tokens=128,
            max_response_tokens=64,
            cpu_kv_cache_mib=32,
            max_num_seqs=32,
        ),
        policy=Policy(
            dtype="float32",
            ranks_per_policy=arguments.ranks,
            zero_stage=arguments.zero_stage,
            gradient_checkpointing=False,
        ),
        cluster=Cluster(device="cpu"),
    )


def save_model(folder: Path, size: str, *, is_tied: bool) -> list[torch.Tensor]:
    """Write a random model with a tokenizer to ``folder``; returns its parameters."""
    torch.manual_seed(0)
    tokenizer = build_tokenizer(CHAT_FORMATS["qwen2"])
    shape = SHAPES[size]
    config = Qwen2Config(
        vocab_size=max(VOCABULARIES[size], len(tokenizer)),
        num_key_value_heads=shape["num_attention_heads"],
        intermediate_size=3 * shape["hidden_size"],
        max_position_embeddings=256,
        tie_word_embeddings=is_tied,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **shape,
    )
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return [parameter.detach() for parameter in model.parameters()]


if __name__ == "__main__":
    main(read_arguments(Arguments, about=__doc__))
