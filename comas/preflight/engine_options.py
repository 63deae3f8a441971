"""Options of vLLM and DeepSpeed that a run may not set, since it relies on them. Which others there
are, and with which values, vLLM says as an engine starts."""

from collections.abc import Iterator

from comas.config.faults import Conflict
from comas.config.keys import leaves
from comas.config.schema import Config

REFUSED_OF_VLLM = {
    "model": "society.models says it",
    "dtype": "rollout.dtype says it",
    "seed": "every request has a seed of its own, made from the key seed",
    "max_model_len": "rollout.max_prompt_tokens and rollout.max_response_tokens make it",
    "max_num_seqs": "rollout.max_num_seqs says it",
    "gpu_memory_utilization kv_cache_memory_bytes num_gpu_blocks_override": (
        "rollout.cpu_kv_cache_mib says it on a CPU, rollout.gpu_memory_utilization on a GPU"
    ),
    "weight_transfer_config enable_sleep_mode load_format worker_cls worker_extension_cls": (
        "the run loads the weights, sends them after every update, and puts engines to sleep"
    ),
    "logprobs_mode logits_processors diffusion_config generation_config override_generation_config "
    "quantization quantization_config kv_cache_dtype kv_cache_dtype_skip_layers mamba_cache_dtype "
    "mamba_ssm_cache_dtype": "the update would compute log-probs of another distribution",
    "runner convert": "an engine generates",
    "hf_overrides hf_config_path config_format revision model_class_overrides model_weights "
    "trust_remote_code tokenizer tokenizer_mode tokenizer_revision": (
        "the update reads the model's folder as it is: change it there"
    ),
    "enable_lora max_loras max_lora_rank max_cpu_loras lora_target_modules lora_dtype "
    "default_mm_loras": "policy.lora says it",
    "distributed_executor_backend device_ids nnodes node_rank tensor_parallel_size "
    "pipeline_parallel_size prefill_context_parallel_size decode_context_parallel_size "
    "master_addr master_port enable_expert_parallel data_parallel_size data_parallel_rank "
    "data_parallel_size_local data_parallel_start_rank data_parallel_address data_parallel_backend "
    "data_parallel_rpc_port data_parallel_external_lb data_parallel_hybrid_lb "
    "data_parallel_multi_port_external_lb": (
        "rollout.tensor_parallel says how many GPUs an engine has; rollout.engines_per_policy "
        "makes more engines"
    ),
}
"""Arguments of vLLM's ``EngineArgs`` -> why no option sets them."""
REFUSED_OF_DEEPSPEED = {
    "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps "
    "managed_gradient_accumulation elasticity": (
        "the trainer marks the end of each optimiser step: optimization.train_batch_size, policy.*"
    ),
    "gradient_clipping": "optimization.max_grad_norm says it",
    "optimizer scheduler zero_force_ds_cpu_optimizer": "the keys of optimization say it",
    "bf16.enabled fp16 amp torch_autocast": "policy.dtype says it",
    "zero_optimization.stage": "policy.zero_stage says it",
    "zero_optimization.offload_optimizer": "policy.adam_offload says it",
    "zero_optimization.offload_param": "weights are read where the update leaves them",
    "checkpoint": "the run writes and seals its checkpoints itself",
}
"""Entries of DeepSpeed's configuration -> why no option sets them."""
ALLOWED_OF_DEEPSPEED = (
    *("activation_checkpointing", "aio", "bf16", "comms_logger", "communication_data_type"),
    *("compile", "csv_monitor", "data_types", "disable_allgather", "disable_python_gc"),
    *("dump_state", "flops_profiler", "gradient_allreduce_op", "gradient_predivide_factor"),
    *("log_level", "memory_breakdown", "prescale_gradients", "steps_per_print"),
    *("tensorboard", "timers", "wall_clock_breakdown", "wandb"),
    *("zero_allow_untested_optimizer", "zero_optimization"),
)
"""The other entries that an update of one model on its ranks can have; DeepSpeed itself says
nothing of one that it does not know."""


def option_conflicts(config: Config) -> Iterator[Conflict]:
    """Yield what no run can have of ``rollout.vllm_options`` and ``policy.deepspeed_options``."""
    vllm, deepspeed = config.rollout.vllm_options, config.policy.deepspeed_options
    for prefix, options, refused, allowed in (
        ("rollout.vllm_options", vllm, REFUSED_OF_VLLM, None),
        ("policy.deepspeed_options", deepspeed, REFUSED_OF_DEEPSPEED, ALLOWED_OF_DEEPSPEED),
    ):
        for leaf in leaves(options):
            key, (name, *inner) = f"{prefix}.{leaf}", leaf.split(".")
            entries = {name, ".".join([name, *inner[:1]])}
            reasons = [why for names, why in refused.items() if entries & {*names.split()}]
            if reasons:
                yield Conflict((key,), f"cannot be set here: {reasons[0]}", "leave it out")
            elif allowed is not None and name not in allowed:
                remedy = f"choose among {', '.join(allowed)}"
                yield Conflict((key,), f"{name} is no option that a run can have", remedy)
    if vllm.get("enable_chunked_prefill") and config.cluster.device != "cuda":
        yield Conflict(
            ("rollout.vllm_options.enable_chunked_prefill", "cluster.device"),
            "on a CPU, vLLM crashes on a seeded request whose prompt is prefilled in chunks",
            "leave it out; on GPUs (cluster.device=cuda) it is vLLM's default",
        )
