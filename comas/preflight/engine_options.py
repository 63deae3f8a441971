"""Which options of vLLM and DeepSpeed a run may set beside its keys, and why not the others: those
that it relies on (``option_conflicts``), and those that the libraries do not take
(``option_needs``)."""

import ast
import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from comas.config.faults import Conflict, yaml_text
from comas.config.keys import leaves
from comas.config.schema import Config
from comas.engines.policy.deepspeed_options import deepspeed_config
from comas.engines.schemas import complaints
from comas.preflight.needs import Need
from comas.types import Device

_GPUS = (
    "rollout.tensor_parallel says how many GPUs an engine has; rollout.engines_per_policy makes "
    "more engines"
)
_DISTRIBUTION = "the update would compute log-probs of another distribution"
_LORA = "policy.lora says it"
_RESPONSES = "rollout.max_prompt_tokens and rollout.max_response_tokens make it"
_KV_CACHE = "rollout.cpu_kv_cache_mib says it on a CPU, rollout.gpu_memory_utilization on a GPU"
_MODEL = "the update reads the model's folder as it is: change it there"

REFUSED_OF_VLLM: Mapping[str, str] = {
    "model": "society.models says it",
    "dtype": "rollout.dtype says it",
    "seed": "every request has a seed of its own, made from the key seed",
    "max_model_len": _RESPONSES,
    "max_num_seqs": "rollout.max_num_seqs says it",
    "gpu_memory_utilization": "rollout.gpu_memory_utilization says it",
    "kv_cache_memory_bytes": _KV_CACHE,
    "num_gpu_blocks_override": _KV_CACHE,
    "weight_transfer_config": "the run sends its weights by it",
    "enable_sleep_mode": "cluster.placement says it",
    "load_format": "weights are read from the model's folder, and sent after every update",
    **dict.fromkeys(("logprobs_mode", "logits_processors", "diffusion_config"), _DISTRIBUTION),
    **dict.fromkeys(("generation_config", "override_generation_config"), _DISTRIBUTION),
    **dict.fromkeys(("quantization", "quantization_config"), _DISTRIBUTION),
    **dict.fromkeys(("kv_cache_dtype", "kv_cache_dtype_skip_layers"), _DISTRIBUTION),
    **dict.fromkeys(("mamba_cache_dtype", "mamba_ssm_cache_dtype"), _DISTRIBUTION),
    **dict.fromkeys(("runner", "convert"), "an engine generates"),
    **dict.fromkeys(("hf_overrides", "hf_config_path", "config_format", "revision"), _MODEL),
    **dict.fromkeys(("model_class_overrides", "model_weights", "trust_remote_code"), _MODEL),
    **dict.fromkeys(("tokenizer", "tokenizer_mode", "tokenizer_revision"), _MODEL),
    **dict.fromkeys(("worker_cls", "worker_extension_cls"), "weights are loaded by vLLM's worker"),
    **dict.fromkeys(("enable_lora", "max_loras", "max_lora_rank", "max_cpu_loras"), _LORA),
    **dict.fromkeys(("lora_target_modules", "lora_dtype", "default_mm_loras"), _LORA),
    **dict.fromkeys(("distributed_executor_backend", "device_ids"), _GPUS),
    **dict.fromkeys(("nnodes", "node_rank"), _GPUS),
    **dict.fromkeys(("tensor_parallel_size", "pipeline_parallel_size"), _GPUS),
    **dict.fromkeys(("prefill_context_parallel_size", "decode_context_parallel_size"), _GPUS),
    **dict.fromkeys(("master_addr", "master_port", "enable_expert_parallel"), _GPUS),
}
"""Argument of vLLM's ``EngineArgs`` -> why no option sets it. So is any of data parallelism."""

_STEPS = "the trainer marks the end of each optimiser step: optimization.train_batch_size, policy.*"
_OPTIMIZER = "the keys of optimization say it"
_DTYPE = "policy.dtype says it"

REFUSED_OF_DEEPSPEED: Mapping[str, str] = {
    "train_batch_size": _STEPS,
    "train_micro_batch_size_per_gpu": _STEPS,
    "gradient_accumulation_steps": _STEPS,
    "managed_gradient_accumulation": _STEPS,
    "elasticity": _STEPS,
    "gradient_clipping": "optimization.max_grad_norm says it",
    "optimizer": _OPTIMIZER,
    "scheduler": _OPTIMIZER,
    "zero_force_ds_cpu_optimizer": _OPTIMIZER,
    **dict.fromkeys(("bf16.enabled", "fp16", "amp", "torch_autocast"), _DTYPE),
    "zero_optimization.stage": "policy.zero_stage says it",
    "zero_optimization.offload_optimizer": "policy.adam_offload says it",
    "zero_optimization.offload_param": "weights are read where the update leaves them",
    "checkpoint": "the run writes and seals its checkpoints itself",
}
"""Entry of DeepSpeed's configuration -> why no option sets it."""

ALLOWED_OF_DEEPSPEED = (
    *("activation_checkpointing", "aio", "bf16", "comms_logger", "communication_data_type"),
    *("compile", "csv_monitor", "data_types", "disable_allgather", "disable_python_gc"),
    *("dump_state", "flops_profiler", "gradient_allreduce_op", "gradient_predivide_factor"),
    *("log_level", "memory_breakdown", "prescale_gradients", "steps_per_print", "tensorboard"),
    *("timers", "wall_clock_breakdown", "wandb", "zero_allow_untested_optimizer"),
    "zero_optimization",
)
"""The other entries that an update of one model on its ranks can have."""


def option_conflicts(config: Config) -> Iterator[Conflict]:
    """What of ``rollout.vllm_options`` and ``policy.deepspeed_options`` no run can have."""
    yield from _of_vllm(config.rollout.vllm_options, device=config.cluster.device)
    yield from _of_deepspeed(config.policy.deepspeed_options)


def _of_vllm(options: Mapping[str, object], *, device: str) -> Iterator[Conflict]:
    for leaf in leaves(options):
        key, name = f"rollout.vllm_options.{leaf}", leaf.partition(".")[0]
        if name.startswith("data_parallel"):
            yield _refusal(key, _GPUS)
        elif name in REFUSED_OF_VLLM:
            yield _refusal(key, REFUSED_OF_VLLM[name])
        else:
            yield from _unknown(key, name, vllm_arguments(), of="an argument of vLLM's EngineArgs")
    if options.get("enable_chunked_prefill") and device != "cuda":
        yield Conflict(
            ("rollout.vllm_options.enable_chunked_prefill", "cluster.device"),
            "on a CPU, vLLM crashes on a seeded request whose prompt is prefilled in chunks",
            "leave it out; on GPUs (cluster.device=cuda) it is vLLM's default",
        )


def _of_deepspeed(options: Mapping[str, object]) -> Iterator[Conflict]:
    for leaf in leaves(options):
        key = f"policy.deepspeed_options.{leaf}"
        name, *inner = leaf.split(".")
        within = ".".join([name, *inner[:1]])
        if reason := REFUSED_OF_DEEPSPEED.get(name, REFUSED_OF_DEEPSPEED.get(within)):
            yield _refusal(key, reason)
        elif name == "zero_optimization" and inner:
            yield from _unknown(key, inner[0], zero_fields(), of="an entry of zero_optimization")
        else:
            of = "an entry of DeepSpeed that a run can have"
            yield from _unknown(key, name, ALLOWED_OF_DEEPSPEED, of=of)


def option_needs(config: Config, *, device: Device) -> list[Need]:
    """What vLLM and DeepSpeed say of the values of options, where there are any: a fault for each
    that they do not take."""
    vllm, deepspeed = config.rollout.vllm_options, config.policy.deepspeed_options
    if not vllm and not deepspeed:
        return []
    policy = replace(config.policy, zero_stage=config.policy.zero_stage or 0)
    merged, plain = (
        deepspeed_config(of, config.optimization, device=device, num_trained=1)
        for of in (policy, replace(policy, deepspeed_options={}))
    )
    entries = {name: merged[name] for name in deepspeed}
    found = complaints(vllm=vllm, deepspeed=entries, plain=plain)
    needs = [
        _untaken(f"rollout.vllm_options.{key}", yaml_text(value), said, by="vLLM")
        for key, value, said in found["vllm"]
    ]
    needs += [
        _untaken(f"policy.deepspeed_options.{key}", yaml_text(value), said, by="DeepSpeed")
        for key, value, said in found["deepspeed"]
    ]
    return needs or [Need("options of vLLM, DeepSpeed", "as they define them", "taken")]


def _untaken(key: str, value: str, said: str, *, by: str) -> Need:
    fault = f"{key} = {value}: {by} does not take it: {said}. Change it, or leave it out"
    return Need(key, f"as {by} defines it", "not taken", fault=fault)


def described_options(config: Config) -> list[str]:
    """A line for each engine that has options: ``rollout.vllm_options, over what the other keys
    make: {enforce_eager: true}``."""
    given = {
        "rollout.vllm_options": config.rollout.vllm_options,
        "policy.deepspeed_options": config.policy.deepspeed_options,
    }
    return [
        f"{key}, over what the other keys make: {yaml_text(options)}"
        for key, options in given.items()
        if options
    ]


@cache
def vllm_arguments() -> frozenset[str]:
    """The names of vLLM's ``EngineArgs``, from its source: importing it takes seconds."""
    return _fields("vllm", "engine/arg_utils.py", "EngineArgs")


@cache
def zero_fields() -> frozenset[str]:
    """The names of DeepSpeed's ``zero_optimization``, from its source."""
    return _fields("deepspeed", "runtime/zero/config.py", "DeepSpeedZeroConfig")


def _fields(package: str, path: str, name: str) -> frozenset[str]:
    """The annotated names of a class in a package that is installed, and is not imported."""
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} is not installed"
    tree = ast.parse((Path(spec.origin).parent / path).read_text(encoding="utf-8"))
    [declared] = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name]
    targets = (node.target for node in declared.body if isinstance(node, ast.AnnAssign))
    return frozenset(target.id for target in targets if isinstance(target, ast.Name))


def _refusal(key: str, reason: str) -> Conflict:
    return Conflict((key,), f"cannot be set here: {reason}", "leave it out")


def _unknown(key: str, name: str, known: Collection[str], *, of: str) -> Iterator[Conflict]:
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        yield Conflict(
            (key,), f"{name} is not {of}", f"did you mean {close[0]}?" if close else "leave it out"
        )
