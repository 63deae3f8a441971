"""Options for vLLM and DeepSpeed. Those that would break a run are refused, and so are names that
the installed library does not have; every other one is passed on with any value."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from fnmatch import filter as filter_names
from importlib.util import find_spec
from pathlib import Path

from comas.config.errors import Conflict, yaml_text
from comas.config.keys import leaves
from comas.config.schema import Config

REFUSED_OF_VLLM = {
    "model dtype max_num_seqs": "society.models, rollout.dtype and rollout.max_num_seqs set it",
    "seed": "every request has its own seed, made from the key seed",
    "max_model_len": "rollout.max_prompt_tokens and rollout.max_response_tokens set it",
    "gpu_memory_utilization kv_cache_memory_bytes": (
        "rollout.cpu_kv_cache_mib sets it on a CPU, rollout.gpu_memory_utilization on a GPU"
    ),
    "weight_transfer_config enable_sleep_mode load_format worker_cls worker_extension_cls": (
        "the run loads the weights, sends them after every update, and puts engines to sleep"
    ),
    "logprobs_mode logits_processors *generation_config quantization* kv_cache_dtype*": (
        "the update would compute log-probs of another distribution"
    ),
    "hf_overrides revision trust_remote_code tokenizer*": (
        "the update reads the model's folder as it is: change it there"
    ),
    "*lora*": "policy.lora sets it",
    "distributed_executor_backend *_parallel_size data_parallel_*": (
        "rollout.tensor_parallel sets the GPUs of an engine, rollout.engines_per_policy the engines"
    ),
}
"""Patterns of arguments of vLLM's ``EngineArgs`` -> why a run refuses them."""
REFUSED_OF_DEEPSPEED = {
    "train_*batch_size* gradient_accumulation_steps": (
        "the trainer marks the end of each optimiser step: optimization.train_batch_size, policy.*"
    ),
    "gradient_clipping": "optimization.max_grad_norm sets it",
    "optimizer scheduler": "the keys of optimization set it",
    "bf16.enabled fp16 amp torch_autocast": "policy.dtype sets it",
    "zero_optimization.stage": "policy.zero_stage sets it",
    "zero_optimization.offload_*": "policy.adam_offload sets it; weights are never offloaded",
    "compression_training progressive_layer_drop hybrid_engine *_parallel*": (
        "each rank updates the whole model, the same one that samples"
    ),
}
"""Patterns of entries of DeepSpeed's configuration -> why a run refuses them."""


def option_conflicts(config: Config) -> Iterator[Conflict]:
    """Yield the options that are refused or unknown to the installed library."""
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
                if any(filter_names(entries, pattern) for pattern in patterns.split())
            ]
            if reasons:
                yield Conflict((key,), f"cannot be set here: {reasons[0]}", "leave it out")
            elif name not in known:
                close = [f"did you mean {each}?" for each in get_close_matches(name, known, n=1)]
                said = f"the installed library has no option {name}"
                yield Conflict((key,), said, [*close, "leave it out"][0])
    if vllm.get("enable_chunked_prefill") and config.cluster.device != "cuda":
        yield Conflict(
            ("rollout.vllm_options.enable_chunked_prefill", "cluster.device"),
            "on a CPU, vLLM crashes on a seeded request whose prompt is prefilled in chunks",
            "leave it out; on GPUs (cluster.device=cuda) it is vLLM's default",
        )


def passed_on(config: Config) -> list[str]:
    """Return a log line for each library that is passed options."""
    options = {"vLLM": config.rollout.vllm_options, "DeepSpeed": config.policy.deepspeed_options}
    return [f"passed on to {name}: {yaml_text(given)}" for name, given in options.items() if given]


def names_of_vllm() -> set[str]:
    """Return the arguments of ``EngineArgs``, read from its source: importing vLLM takes 10 s."""
    [text] = _sources("vllm", "engine/arg_utils.py")
    fields = text.partition("\nclass EngineArgs:\n")[2].partition("\n    def ")[0]
    return {*re.findall(r"^    (\w+): ", fields, re.M)}


def names_of_deepspeed() -> set[str]:
    """Return all names in the modules that read DeepSpeed's configuration, since DeepSpeed ignores
    unknown entries silently."""
    texts = [*_sources("deepspeed", "**/*config.py"), *_sources("deepspeed", "**/*constants.py")]
    return {name for text in texts for name in re.findall(r"[\"'](\w+)[\"']", text)}


def _sources(package: str, pattern: str) -> list[str]:
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} is a requirement"
    return [file.read_text("utf-8") for file in Path(spec.origin).parent.glob(pattern)]
