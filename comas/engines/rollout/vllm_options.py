"""The environment of vLLM processes, and vLLM's arguments."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from comas.config.schema import Lora, Rollout
from comas.engines import LOOPBACK_GROUPS, thread_environment
from comas.engines.allocator import EXPANDABLE, VARIABLES
from comas.types import Device
from comas.utils.model_folder import adapted_layers

WeightTransfer = Literal["shared_memory", "ipc", "nccl"]
"""Weight transfer to an engine on a CPU, on a GPU shared with the trainer, on its own GPU."""

_CPU_PREFILL_TOKENS = 4096
"""Prompt tokens per step on a CPU, unless one prompt has more."""

_GPU_BATCHED_TOKENS = 8192
"""Tokens per step on a GPU: the default of vLLM's offline class on an A100. The default of an
engine like ours is 2,048: a mean prompt of the paper's run would take two steps."""

_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM allows for ``max_lora_rank``."""

QUIET_VLLM = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
"""Environment variables of any process that imports vLLM."""


@dataclass(frozen=True)
class Adapters:
    """The LoRA adapters of an engine, one per policy."""

    lora: Lora
    policies: tuple[int, ...]


def engine_environment(device: Device, *, threads: int = 1) -> dict[str, str]:
    """Return the environment variables that an engine's process must start with; it computes on
    ``threads`` threads on a CPU."""
    environment = {
        # The engine runs in this process, so a killed actor leaves no orphan behind.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        **LOOPBACK_GROUPS,
        **QUIET_VLLM,
    }
    if device == "cuda":
        if find_spec("flashinfer") is None:
            # Trap: vLLM's sampler imports it, though nothing here samples by top-p.
            environment["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
        if EXPANDABLE in os.environ.get(VARIABLES[1], ""):
            # Trap: vLLM, which cannot sleep with these, only looks at the older name.
            environment[VARIABLES[0]] = "expandable_segments:False"
        # Trap: on WSL2 no engine starts without pinned memory ("UVA is not available").
        return environment | {"VLLM_WSL2_ENABLE_PIN_MEMORY": "1"}
    return environment | {
        **thread_environment(threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # Otherwise threads may split a long sequence's keys, depending on the rest of the batch,
        # which changes the last bits of a response.
        "VLLM_CPU_ATTN_SPLIT_KV": "0",
        # Huge pages, so that reading and packing weights has fewer misses.
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        # Eager mode still compiles one function of the sampler: 4 to 25 s for no gain.
        "TORCHDYNAMO_DISABLE": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        # Tokenizer threads cost half as much again, on cores that the engines need.
        "TOKENIZERS_PARALLELISM": "false",
    }


def engine_arguments(
    model_path: str,
    *,
    rollout: Rollout,
    device: Device,
    weight_transfer: WeightTransfer,
    seed: int,
    adapters: Adapters | None = None,
    is_recurrent: bool = False,
) -> dict[str, Any]:
    """Return keyword arguments of vLLM's ``EngineArgs``; ``rollout.vllm_options`` take precedence.

    Log-probs are those of the sampled distribution (temperature applied). The model's
    generation_config sets stop tokens, but no sampling defaults.
    """
    max_model_len = rollout.max_model_len
    arguments = {
        "model": model_path,
        "dtype": rollout.dtype,
        "seed": seed,
        "max_model_len": max_model_len,
        "max_num_seqs": rollout.max_num_seqs,
        "enable_prefix_caching": True,
        "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs",
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if rollout.tensor_parallel > 1:
        arguments |= {
            "tensor_parallel_size": rollout.tensor_parallel,
            # vLLM's Ray workers would each need a GPU from Ray, and would outlive the engine.
            "distributed_executor_backend": "mp",
        }
    if adapters is not None:
        assert adapters.lora.rank is not None
        arguments |= {
            "enable_lora": True,
            # All adapters in any batch, none ever evicted.
            "max_loras": len(adapters.policies),
            "max_cpu_loras": len(adapters.policies),
            "max_lora_rank": lora_room(adapters.lora.rank),
            # Otherwise vLLM would also adapt embeddings and the output layer, with zeros.
            "lora_target_modules": adapted_layers(Path(model_path), adapters.lora.target_modules),
        }
    elif weight_transfer != "shared_memory":
        arguments["weight_transfer_config"] = {"backend": weight_transfer}
    if device == "cuda":
        arguments |= {
            "gpu_memory_utilization": rollout.gpu_memory_utilization,
            "max_num_batched_tokens": gpu_batched_tokens(
                max_model_len=max_model_len, max_num_seqs=rollout.max_num_seqs
            ),
            "enable_sleep_mode": weight_transfer == "ipc",
        }
    else:
        arguments |= cpu_options(
            max_model_len=max_model_len,
            max_num_seqs=rollout.max_num_seqs,
            kv_cache_mib=rollout.cpu_kv_cache_mib // rollout.tensor_parallel,  # of each worker
        )
        # vLLM caches recurrent states between prefill chunks, and here prompts are prefilled whole.
        arguments["enable_prefix_caching"] = not is_recurrent
    return arguments | rollout.vllm_options


def lora_room(rank: int) -> int:
    """Return vLLM's ``max_lora_rank`` for an adapter: ``lora_room(12) == 16``."""
    return next(room for room in _LORA_RANKS if room >= rank)


def gpu_batched_tokens(*, max_model_len: int, max_num_seqs: int) -> int:
    """Return ``max_num_batched_tokens`` on a GPU: at least ``max_num_seqs``, which vLLM requires,
    and at most what these sequences can have."""
    return max(max_num_seqs, min(_GPU_BATCHED_TOKENS, max_num_seqs * max_model_len))


def cpu_options(*, max_model_len: int, max_num_seqs: int, kv_cache_mib: int) -> dict[str, Any]:
    """Return the ``EngineArgs`` (also flags of the server) of any vLLM on a CPU."""
    return {
        "enforce_eager": True,
        "kv_cache_memory_bytes": kv_cache_mib << 20,
        # Trap: on CPU, a request with a seed whose prompt is prefilled in parts crashes vLLM
        # ("CPU Generator does not use offset"), so every prompt is prefilled whole.
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(max_model_len, max_num_seqs, _CPU_PREFILL_TOKENS),
        "worker_extension_cls": "comas.engines.rollout.cpu.worker.CpuWorker",
    }
