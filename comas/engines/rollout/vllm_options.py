"""Environment of a process with vLLM in it, and vLLM's own arguments."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from comas.config.schema import Lora, Rollout
from comas.engines import LOOPBACK_GROUPS, thread_environment
from comas.types import Device

WeightTransfer = Literal["shared_memory", "ipc", "nccl"]
"""How weights reach an engine on a CPU, on a GPU shared with the trainer, on a GPU of its own."""

_CPU_PREFILL_TOKENS = 4096
"""Prompt tokens an engine on CPU puts through the model at once, unless one prompt has more."""

_GPU_BATCHED_TOKENS = 8192
"""Tokens an engine on a GPU puts through the model at once: what vLLM's offline class has on an
A100. Left unset, an engine like ours has 2,048, so that a mean prompt of the paper's run takes two
steps."""

_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM makes room for; an adapter of another rank takes the room of the next."""

QUIET_VLLM = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
"""Environment variables of any process that imports vLLM."""


@dataclass(frozen=True)
class Adapters:
    """The LoRA adapters of an engine whose own weights never change."""

    lora: Lora
    policies: tuple[int, ...]
    """The policies that have an adapter each."""


def engine_environment(device: Device, *, threads: int = 1) -> dict[str, str]:
    """Environment variables that an engine's process must have before it starts; ``threads`` are
    those that it computes on, on a CPU."""
    environment = {
        # The engine runs in this very process, so a killed actor leaves no orphan behind.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        **LOOPBACK_GROUPS,
        **QUIET_VLLM,
    }
    if device == "cuda":
        if find_spec("flashinfer") is None:
            # Trap: vLLM's sampler imports it as it loads, though nothing here samples by top-p.
            environment["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
        # Trap: read on WSL2 alone, where without pinned memory no engine starts ("UVA is not
        # available"), and vLLM does not take it by itself.
        return environment | {"VLLM_WSL2_ENABLE_PIN_MEMORY": "1"}
    return environment | {
        **thread_environment(threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # Else two threads may halve a long sequence's keys, as the rest of the batch leaves them
        # time, and a response would depend on that by its last bits.
        "VLLM_CPU_ATTN_SPLIT_KV": "0",
        # Huge pages for what glibc allocates: weights are read, and packed, with fewer misses.
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        # Eager mode still compiles one function of the sampler, 4 to 25 s for no gain.
        "TORCHDYNAMO_DISABLE": "1",
        # One entry for every shape ever multiplied: by default 250 MiB after 100,000 tokens,
        # beside the cache of its own that vLLM keeps for every layer.
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        # Threads of its own make the tokenizer dearer by half, on cores that the engines need.
        "TOKENIZERS_PARALLELISM": "false",
    }


def engine_arguments(
    model_path: str,
    *,
    rollout: Rollout,
    device: Device,
    weight_transfer: WeightTransfer,
    seed: int,
    adapted_layers: Sequence[str] = (),
    adapters: Adapters | None = None,
    is_recurrent: bool = False,
) -> dict[str, Any]:
    """Keyword arguments of vLLM's ``EngineArgs``; ``rollout.vllm_options`` come last.

    Log-probs are those of the distribution sampled from (temperature applied), and the model's
    own generation_config gives the stop tokens but no sampling defaults. ``adapted_layers`` are
    the layers that ``adapters`` adapt, by the last part of their names; ``is_recurrent`` says that
    the model ``has_recurrent_layers``.
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
            # vLLM's Ray workers would need a GPU each from Ray, and would not end with the engine.
            "distributed_executor_backend": "mp",
        }
    if adapters is None:
        arguments["weight_transfer_config"] = {"backend": weight_transfer}
    else:
        assert adapters.lora.rank is not None
        arguments |= {
            "enable_lora": True,
            # All of them at once in any batch, and none is ever evicted.
            "max_loras": len(adapters.policies),
            "max_cpu_loras": len(adapters.policies),
            "max_lora_rank": lora_room(adapters.lora.rank),
            # Else vLLM would also multiply by nothing for embeddings and the output layer.
            "lora_target_modules": list(adapted_layers),
        }
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
        arguments["worker_extension_cls"] = "comas.engines.rollout.cpu.worker.CpuWorker"
        # States are cached at the ends of parts of a prompt, and here it is prefilled whole.
        arguments["enable_prefix_caching"] = not is_recurrent
    return arguments | rollout.vllm_options


def lora_room(rank: int) -> int:
    """The rank for which vLLM has to make room: ``lora_room(12) == 16``."""
    return next(room for room in _LORA_RANKS if room >= rank)


def gpu_batched_tokens(*, max_model_len: int, max_num_seqs: int) -> int:
    """Tokens that any vLLM on a GPU puts through the model at once: no fewer than sequences, which
    vLLM refuses, and no more than these can have."""
    return max(max_num_seqs, min(_GPU_BATCHED_TOKENS, max_num_seqs * max_model_len))


def cpu_options(*, max_model_len: int, max_num_seqs: int, kv_cache_mib: int) -> dict[str, Any]:
    """Settings of any vLLM on a CPU, an engine here or a server: keyword arguments of
    ``EngineArgs``, which are also the names of the server's flags."""
    return {
        "enforce_eager": True,
        "kv_cache_memory_bytes": kv_cache_mib << 20,
        # Trap: on CPU, a request with a seed whose prompt is prefilled in parts crashes vLLM
        # ("CPU Generator does not use offset"), so every prompt is prefilled whole.
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(max_model_len, max_num_seqs, _CPU_PREFILL_TOKENS),
        "worker_extension_cls": "comas.engines.rollout.cpu.amx.AmxWorker",
    }
