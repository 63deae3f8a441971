"""The GPUs, ports, command lines and environments of vLLM's servers."""

import json
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from comas.engines.rollout.vllm_options import (
    cpu_options,
    engine_environment,
    gpu_batched_tokens,
    lora_room,
)
from comas.preflight.machine import host_bytes, multiplies_bfloat16, usable_cores
from comas.preflight.memory import BYTES, MIB, gib, kv_cache_bytes, model_shape
from comas.preflight.sharding import num_threads
from comas.types import Device
from evaluation.config import EvaluationConfig
from evaluation.models import LocalModel
from evaluation.server_process import KEY_VARIABLE, RequireKey

HOST = "127.0.0.1"
KV_BLOCK = 128
"""Tokens per block of vLLM's KV cache on a CPU."""


@dataclass(frozen=True)
class Slot:
    """A server's GPUs (none on CPU), and its share of their memory."""

    gpus: tuple[str, ...] = ()
    memory_share: float = 0.0


def groups_of(models: Sequence[LocalModel]) -> list[list[int]]:
    """Return groups of indices of models that share a server: adapters of the same model.

    The base has its own server: vLLM's CPU kernels apply the last adapter to requests without one
    if another request of the batch has one.
    """
    groups: dict[Path | int, list[int]] = {}
    for index, model in enumerate(models):
        groups.setdefault(index if model.adapter is None else model.folder, []).append(index)
    return list(groups.values())


def plan_slots(num_servers: int, *, config: EvaluationConfig, device: Device) -> list[Slot]:
    """Assign ``tensor_parallel_size`` of the visible GPUs to each server.

    If there are too few, servers share GPUs and their memory: 4 servers on 2 GPUs run on 0, 1, 0, 1
    with half of ``gpu_memory_utilization`` each. Raises ValueError if one server needs more GPUs.
    """
    if device == "cpu":
        return [Slot()] * num_servers
    gpus, size = visible_gpus(), config.tensor_parallel_size
    groups = [tuple(gpus[i : i + size]) for i in range(0, len(gpus) - size + 1, size)]
    if not groups:
        raise ValueError(
            f"tensor_parallel_size={size}, but this process may use {len(gpus)} GPUs "
            f"({', '.join(gpus) or 'none'}): lower it or change CUDA_VISIBLE_DEVICES"
        )
    share = config.gpu_memory_utilization / (-(-num_servers // len(groups)))
    return [Slot(groups[i % len(groups)], share) for i in range(num_servers)]


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as named in CUDA_VISIBLE_DEVICES."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return [str(index) for index in range(torch.cuda.device_count())]


def free_ports(count: int) -> list[int]:
    """Return ``count`` free ports of this machine."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind((HOST, 0))
        return [listener.getsockname()[1] for listener in listeners]


def server_arguments(
    models: Sequence[LocalModel], *, port: int, slot: Slot, config: EvaluationConfig
) -> list[str]:
    """Return the command line of vLLM's server for a model, or for adapters of one model."""
    model = models[0]
    values: dict[str, object] = {
        "model": model.folder,
        "host": HOST,
        "port": port,
        "dtype": model.dtype if slot.gpus else cpu_dtype(model),
        "max-model-len": model.context_length,
        "max-num-seqs": config.concurrency,
        "generation-config": "auto" if config.generation_config == "model" else "vllm",
        "seed": 0,
        "enable-prefix-caching": True,
        "disable-uvicorn-access-log": True,
        "middleware": f"{RequireKey.__module__}.{RequireKey.__qualname__}",
    }
    if slot.gpus:
        values["tensor-parallel-size"] = config.tensor_parallel_size
        values["gpu-memory-utilization"] = slot.memory_share
        values["max-num-batched-tokens"] = gpu_batched_tokens(
            max_model_len=model.context_length, max_num_seqs=config.concurrency
        )
    else:
        values |= cpu_options(
            max_model_len=model.context_length,
            max_num_seqs=config.concurrency,
            kv_cache_mib=kv_cache_mib(model, config),
        )
    flags = [_flag(name.replace("_", "-"), value) for name, value in values.items()]
    return flags + _lora_flags([model for model in models if model.adapter is not None])


def cpu_dtype(model: LocalModel) -> str:
    """Return the dtype in which a model is served on a CPU."""
    return model.dtype if multiplies_bfloat16() else "float32"


def kv_cache_mib(model: LocalModel, config: EvaluationConfig) -> int:
    """Return the KV cache of a server on a CPU, in MiB: as configured, or more if the longest
    request needs it, as vLLM requires."""
    longest = kv_cache_bytes(
        model_shape(str(model.folder)),
        num_tokens=-(-model.context_length // KV_BLOCK) * KV_BLOCK,
        element_size=BYTES.get(cpu_dtype(model), 4),
    )
    return max(config.cpu_kv_cache_mib, -(-longest // MIB))


def check_host_memory(models: Sequence[LocalModel], config: EvaluationConfig) -> None:
    """Raise ValueError if the weights and KV caches of CPU servers exceed the host's memory."""
    weights = sum(
        model_shape(str(model.folder)).num_parameters * BYTES.get(cpu_dtype(model), 4)
        for model in models
    )
    caches = sum(kv_cache_mib(model, config) * MIB for model in models)
    if weights + caches > (present := host_bytes()):
        longest = max(model.context_length for model in models)
        raise ValueError(
            f"{len(models)} models on this CPU need {gib(weights)} GiB for their weights and "
            f"{gib(caches)} GiB for keys and values (requests of up to {longest} tokens), and the "
            f"machine has {gib(present)} GiB: choose smaller models or, for an evaluation, lower "
            "max_tokens or cpu_kv_cache_mib, or choose fewer setups"
        )


def _flag(name: str, value: object) -> str:
    """``("enforce-eager", False) -> "--no-enforce-eager"``"""
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"


def _lora_flags(adapters: Sequence[LocalModel]) -> list[str]:
    """Return the flags for LoRA adapters, which are named by their folders."""
    if not adapters:
        return []
    return [
        "--enable-lora",
        f"--max-loras={len(adapters)}",
        f"--max-lora-rank={max(lora_room(model.adapter_rank) for model in adapters)}",
        "--lora-modules",
        *map(json.dumps, [{"name": str(m.adapter), "path": str(m.adapter)} for m in adapters]),
    ]


def threads_of_servers(models: Sequence[LocalModel], *, num_servers: int) -> int:
    """Return the threads of each server on a CPU."""
    largest = max(model_shape(str(model.folder)).num_parameters for model in models)
    return num_threads(largest, num_cores=usable_cores(), at_work=num_servers)


def server_environment(slot: Slot, *, key: str, threads: int = 1) -> dict[str, str]:
    """Return the environment of a server that requires ``key``; ``threads`` are for a CPU."""
    environment = os.environ | engine_environment("cuda" if slot.gpus else "cpu", threads=threads)
    environment |= {"VLLM_LOGGING_LEVEL": "INFO", KEY_VARIABLE: key}
    if slot.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(slot.gpus)
    # A key for another server would lock us out of this one.
    environment.pop("VLLM_API_KEY", None)
    return environment
