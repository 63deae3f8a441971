"""Options of vLLM and DeepSpeed that a run may not set, since it relies on them, or since the
installed library does not have them. All others are passed on, with any value."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

from comas.config.errors import Conflict, yaml_text
from comas.config.keys import leaves
from comas.config.schema import Config

REFUSED_OF_VLLM = {
    "model dtype max_num_seqs": "society.models, rollout.dtype and rollout.max_num_seqs say it",
    "seed": "every request has a seed of its own, made from the key seed",
    "max_model_len": "rollout.max_prompt_tokens and rollout.max_response_tokens make it",
    "gpu_memory_utilization kv_cache_memory_bytes num_gpu_blocks_override": (
        "rollout.cpu_kv_cache_mib says it on a CPU, rollout.gpu_memory_utilization on a GPU"
    ),
    "weight_transfer_config enable_sleep_mode load_format worker_cls worker_extension_cls": (
        "the run loads the weights, sends them after every update, and puts engines to sleep"
    ),
    "logprobs_mode logits_processors diffusion_config *generation_config quantization* "
    "kv_cache_dtype* mamba_*dtype": "the update would compute log-probs of another distribution",
    "hf_overrides hf_config_path config_format revision model_[cw]* trust_remote_code tokenizer*": (
        "the update reads the model's folder as it is: change it there"
    ),
    "enable_lora max_*lora* lora_* default_mm_loras": "policy.lora says it",
    "distributed_executor_backend device_ids nnodes *_parallel_size data_parallel_*": (
        "rollout.tensor_parallel says how many GPUs an engine has; rollout.engines_per_policy "
        "makes more engines"
    ),
}
"""Patterns of arguments of vLLM's ``EngineArgs`` -> why no option sets them."""
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
    "checkpoint nebula": "the run writes and seals its checkpoints itself",
    "compression_training progressive_layer_drop weight_quantization quantize_training "
    "hybrid_engine tensor_parallel sequence_parallel_size pipeline": (
        "the update is of the whole model, as it samples, on each rank"
    ),
}
"""Patterns of entries of DeepSpeed's configuration -> why no option sets them."""


def option_conflicts(config: Config) -> Iterator[Conflict]:
    """Yield the options that a run relies on, or that the installed library does not have."""
    vllm, deepspeed = config.rollout.vllm_options, config.policy.deepspeed_options
    for prefix, options, refused, names in (
        ("rollout.vllm_options", vllm, REFUSED_OF_VLLM, names_of_vllm),
        ("policy.deepspeed_options", deepspeed, REFUSED_OF_DEEPSPEED, names_of_deepspeed),
    ):
        known = names() if options else ()
        for leaf in leaves(options):
            key, (name, *inner) = f"{prefix}.{leaf}", leaf.split(".")
            entries = (name, ".".join([name, *inner[:1]]))
            reasons = [
                why
                for patterns, why in refused.items()
                if any(fnmatchcase(entry, p) for entry in entries for p in patterns.split())
            ]
            if reasons:
                yield Conflict((key,), f"cannot be set here: {reasons[0]}", "leave it out")
            elif name not in known:
                close = [f"did you mean {each}?" for each in get_close_matches(name, known, n=1)]
                said = f"the installed library has no option {name}"
                yield Conflict((key,), said, next(iter(close), "leave it out"))
    if vllm.get("enable_chunked_prefill") and config.cluster.device != "cuda":
        yield Conflict(
            ("rollout.vllm_options.enable_chunked_prefill", "cluster.device"),
            "on a CPU, vLLM crashes on a seeded request whose prompt is prefilled in chunks",
            "leave it out; on GPUs (cluster.device=cuda) it is vLLM's default",
        )


def passed_on(config: Config) -> list[str]:
    """What the libraries are given as the options say it, in words; empty if that is nothing."""
    options = {"vLLM": config.rollout.vllm_options, "DeepSpeed": config.policy.deepspeed_options}
    return [f"passed on to {name}: {yaml_text(given)}" for name, given in options.items() if given]


def names_of_vllm() -> set[str]:
    """The arguments of ``EngineArgs``, read in its source: vLLM takes 10 s to import."""
    [text] = _sources("vllm", "engine/arg_utils.py")
    fields = text.partition("\nclass EngineArgs:\n")[2].partition("\n    def ")[0]
    return {*re.findall(r"^    (\w+): ", fields, re.M)}


def names_of_deepspeed() -> set[str]:
    """The names in the modules that read DeepSpeed's configuration, which itself says nothing of an
    entry that it does not know."""
    texts = [*_sources("deepspeed", "**/*config.py"), *_sources("deepspeed", "**/*constants.py")]
    return {name for text in texts for name in re.findall(r"[\"'](\w+)[\"']", text)}


def _sources(package: str, pattern: str) -> list[str]:
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} is a requirement"
    return [file.read_text("utf-8") for file in Path(spec.origin).parent.glob(pattern)]
