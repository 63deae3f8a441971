"""Which models can be trained, and which of them with samples packed into one row."""

from transformers import PreTrainedConfig, PreTrainedModel

_PACKABLE = (
    "apertus arcee dots1 ernie4_5 ernie4_5_moe gemma glm glm4 glm4_moe gpt2 gpt_bigcode gpt_neox "
    "helium hunyuan_v1_dense hunyuan_v1_moe llama ministral3 mistral mixtral olmo olmo2 olmoe opt "
    "persimmon phi3 qwen2 qwen2_moe qwen3 qwen3_moe seed_oss smollm3 starcoder2"
)
PACKABLE = frozenset(_PACKABLE.split())
"""Model types of transformers 5.15 whose packed samples have the log-probs that each has alone
(tested in ``tests/test_padded.py``)."""
NOT_PLAIN = ("attn_logit_softcapping", "final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings that ``packed_attention``, or a head of one matrix, does not support."""
NOISE = ("dropout", "pdrop", "jitter")
"""Parts of the names of settings that add noise in training only."""
OTHER_IN_TRAINING = {
    "phimoe": "draws its experts at random while it is trained",
    "cohere2": "has windows that are a token shorter in transformers than in vLLM",
}
"""Model types whose log-probs differ from vLLM's (``results/model_types.md``)."""


def check_trainable(model: PreTrainedModel) -> None:
    """Raise ValueError, with the reason, for a model whose log-probs in training cannot equal those
    of sampling token by token."""
    config = model.config
    reason = OTHER_IN_TRAINING.get(config.model_type)
    text = config.get_text_config(decoder=True)
    is_decoder = getattr(text, "is_decoder", None) is not False or config.model_type in PACKABLE
    if getattr(text, "use_bidirectional_attention", None) in (True, "all") or not is_decoder:
        reason = "lets tokens attend to later ones"
    if "max_trained_positions" in (getattr(text, "rope_parameters", None) or {}):
        reason = "has max_trained_positions in its RoPE, which vLLM reads and transformers does not"
    if reason is not None:
        raise ValueError(
            f"{config.name_or_path} ({config.model_type}) {reason}, and cannot be trained: choose "
            "a causal language model"
        )


def why_padded(model: PreTrainedModel) -> str | None:
    """Return why each sample needs its own row (``"sliding_window = 4096"``), or None if samples
    may be packed into one row.

    Packing requires that every layer has plain causal attention over all earlier tokens, nothing
    else mixes tokens, and logits are the last hidden states times one matrix.
    """
    config = model.config
    if config.model_type not in PACKABLE:
        return f"samples of model_type = {config.model_type} are not known to be packable"
    layer_types = getattr(config, "layer_types", None)
    if layer_types is not None and set(layer_types) != {"full_attention"}:
        return f"layer_types = {sorted(set(layer_types))}"
    if layer_types is None and getattr(config, "sliding_window", None) is not None:
        return f"sliding_window = {config.sliding_window}"
    for key in NOT_PLAIN:
        if (value := getattr(config, key, None)) not in (None, 1.0):
            return f"{key} = {value}"
    if getattr(model.get_output_embeddings(), "bias", None) is not None:
        return "its output layer has a bias"
    return None


def without_dropout(config: PreTrainedConfig) -> PreTrainedConfig:
    """Set every rate of dropout, and of noise in routers, to 0; return ``config``."""
    for part in {id(c): c for c in (config, config.get_text_config())}.values():
        for name, value in vars(part).items():
            if isinstance(value, float) and any(kind in name for kind in NOISE):
                setattr(part, name, 0.0)
    return config


def with_fixed_rope(config: PreTrainedConfig, max_model_len: int) -> PreTrainedConfig:
    """Fix RoPE's frequencies to those of a vLLM engine of ``max_model_len`` tokens; return
    ``config``. (Of LongRoPE's two sets, transformers would choose by the batch's longest sample.)
    """
    parameters = getattr(config.get_text_config(decoder=True), "rope_parameters", None) or {}
    for rope in [parameters] if "rope_type" in parameters else parameters.values():
        if rope and rope["rope_type"] == "longrope":
            side = "long" if max_model_len > rope["original_max_position_embeddings"] else "short"
            rope |= dict.fromkeys(("short_factor", "long_factor"), rope[f"{side}_factor"])
            # As vLLM: by this factor, else by max_position_embeddings over the original length.
            rope |= {"factor": None, "attention_factor": rope.get(f"{side}_mscale")}
    return config
