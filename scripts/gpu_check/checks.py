"""The checks: societies with random models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from comas.config.keys import key
from comas.config.schema import (
    Cluster,
    Config,
    Lora,
    Optimization,
    Policy,
    ReinforcePP,
    Rollout,
    Society,
)
from comas.preflight.machine import Machine
from comas.types import Device

PROMPT_TOKENS = 512
ADAPTER_RATE = 10
"""Learning rate of adapters relative to whole models."""
LIMIT_S = 1800.0
"""Limit for a single call of an engine, including its start."""


@dataclass(frozen=True)
class Size:
    """A Qwen2 model and its requests."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    vocab_size: int
    num_requests: int = 128
    """Per agent."""
    response_tokens: int = 512
    long_prompt_tokens: int = 8192
    learning_rate: float = 1e-4
    slowness: float = 1.0
    """Factor of a check's ``estimate_s``."""


SIZES = {
    "tiny": Size(128, 352, 4, 4, 2, 1024, 12, 24, 768, 1e-3),
    "135m": Size(576, 1536, 30, 9, 3, 49152, 16, 128),  # SmolLM2's shape
    "0.5b": Size(896, 4864, 24, 14, 2, 151936),
    "1.5b": Size(1536, 8960, 28, 12, 2, 151936),
    "3b": Size(2048, 11008, 36, 16, 2, 151936, slowness=2.0),
}


@dataclass(frozen=True)
class Check:
    """A society that takes two training steps, and what is special about it."""

    estimate_s: float = 90.0
    """Its seconds on an H100."""
    num_agents: int = 1
    num_ranks: int = 1
    """Ranks, and GPUs of the rollout engines, per policy."""
    tensor_parallel: int = 1
    """GPUs per rollout engine."""
    lora_rank: int = 0
    """0: every agent has its own model."""
    has_long_samples: bool = False
    """Longer than a micro batch, so that activations are recomputed; with a KL penalty."""
    is_sharded: bool = False
    """By ZeRO-3, with Adam's states in host memory."""
    is_disaggregated: bool = False
    is_resumed: bool = False
    is_timed: bool = False
    """The rollout engine has CUDA graphs, for a few batch sizes."""
    is_compared: bool = False
    """The rollout with vLLM alone, the update with a plain loop; and the update is profiled."""

    @property
    def num_gpus(self) -> int:
        return 2 if self.is_disaggregated else self.num_ranks


CHECKS = {
    "one": Check(120, is_timed=True),
    "lora": Check(60, num_agents=2, lora_rank=16),
    "ranks": Check(num_ranks=2),
    "tensor": Check(num_ranks=2, tensor_parallel=2),
    "resume": Check(120, is_resumed=True),
    "bare": Check(150, is_timed=True, is_compared=True),
    "long": Check(has_long_samples=True),
    "zero3": Check(150, is_sharded=True, is_resumed=True),
    "nccl": Check(is_disaggregated=True),
}
"""Most informative first; ``scripts/gpu_check.sh --help`` says what each shows."""


@dataclass
class Arguments:
    """The keys of the command line."""

    device: Device = "cuda"
    size: str = ""
    """Names in ``SIZES``: the first for all checks, the others for ``one`` only."""
    checks: str = ",".join(CHECKS)
    """Names in ``CHECKS``."""
    budget: float = key(0.0, ge=0)
    """Seconds; checks that do not fit are not run. 0: no limit."""
    out: str = "saves/gpu_check"
    """Folder of ``rows.jsonl``, written after every row."""
    host_gib: float = key(0.0, ge=0)
    """The machine's memory, if it grows with use; 0: its present memory."""

    @property
    def sizes(self) -> list[str]:
        """The given sizes, or the device's default."""
        return (self.size or ("0.5b,1.5b" if self.device == "cuda" else "tiny")).split(",")


class Planned(NamedTuple):
    """A check with a model size."""

    name: str
    size_name: str

    @property
    def check(self) -> Check:
        return CHECKS[self.name]

    @property
    def size(self) -> Size:
        return SIZES[self.size_name]

    @property
    def estimate_s(self) -> float:
        return self.check.estimate_s * self.size.slowness

    def __str__(self) -> str:
        return f"{self.name} of {self.size_name}"


def planned(arguments: Arguments) -> list[Planned]:
    """Return the requested checks in the order of ``CHECKS``; after the first two, ``one`` is
    repeated with the other sizes, as speed depends on them."""
    names = arguments.checks.split(",")
    first, *larger = arguments.sizes
    pairs = [Planned(name, first) for name in CHECKS if name in names]
    pairs[2:2] = [Planned("one", size) for size in larger if "one" in names]
    return pairs


def why_impossible(check: Check, machine: Machine) -> str | None:
    """Return why this machine's devices cannot run ``check``, or None if they can."""
    if machine.device == "cpu":
        return "NCCL runs between GPUs only" if check.is_disaggregated else None
    if machine.num_gpus < check.num_gpus:
        return f"needs {check.num_gpus} GPUs, and this machine has {machine.num_gpus}"
    return None


def society_config(check: Check, size: Size, *, device: Device, limit_s: float = LIMIT_S) -> Config:
    """Configure the society of ``check``; ``limit_s`` bounds every call."""
    # Adapters share one engine and one trainer, which does not leave the GPU.
    num_sharers = 1 if check.lora_rank else check.num_agents
    dtype: Literal["float32", "bfloat16"] = "bfloat16" if device == "cuda" else "float32"
    longest = size.long_prompt_tokens if check.has_long_samples else PROMPT_TOKENS
    # Start quickly: few CUDA graphs, or none if speed does not count.
    graphs = {"cudagraph_capture_sizes": [1, 16, 64, size.num_requests]}
    options: dict[str, Any] = {"enforce_eager": True}
    if check.is_timed:
        options = {"compilation_config": graphs}
    return Config(
        society=Society(num_agents=check.num_agents),
        rollout=Rollout(
            engines_per_policy=check.num_ranks // check.tensor_parallel,
            tensor_parallel=check.tensor_parallel,
            dtype=dtype,
            max_prompt_tokens=longest,
            max_response_tokens=size.response_tokens,
            vllm_options=options if device == "cuda" else {},
            gpu_memory_utilization=0.4 if check.lora_rank else 0.8 / num_sharers,
        ),
        policy=Policy(
            ranks_per_policy=check.num_ranks,
            dtype=dtype,
            zero_stage=3 if check.is_sharded else None,
            adam_offload=True if check.is_sharded else None,
            micro_batch_tokens=longest // 2 if check.has_long_samples else 8192,
            lora=Lora(rank=check.lora_rank or None, alpha=2 * max(check.lora_rank, 1)),
        ),
        algorithm=ReinforcePP(kl_coef=0.01 if check.has_long_samples else 0.0),
        optimization=Optimization(
            learning_rate=size.learning_rate * (ADAPTER_RATE if check.lora_rank else 1),
            warmup_steps=0,
            train_batch_size=None,
        ),
        cluster=Cluster(
            device=device,
            placement="disaggregated" if check.is_disaggregated else "colocated",
            policies_per_gpu=num_sharers,
            call_timeout_s=limit_s,
        ),
    )


def save_model(folder: Path, size: Size, device: Device) -> None:
    """Write a random Qwen2 model with a tokenizer and chat template, which may enlarge the
    vocabulary, in Hugging Face format."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    from comas.quickstart.tokenizers import CHAT_FORMATS, build_tokenizer

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
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=config.dtype)
    model.save_pretrained(folder)
