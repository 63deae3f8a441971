"""Which models can be trained: what the update computes is theirs only if they are plain."""

from transformers import PreTrainedModel

NOT_PLAIN = ("attn_logit_softcapping", "attention_dropout", "attn_pdrop")
"""Settings that make attention more than ``packed_attention`` computes."""
LOGIT_TRANSFORMS = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings of models (Gemma 2, Cohere, Granite) whose logits are more than a linear map."""


def check_trainable(model: PreTrainedModel) -> None:
    """Refuse a model whose log-probs the update would get wrong.

    Raises:
        ValueError: its attention is not plain causal attention over all earlier tokens, or its
            logits are more than its last hidden states times one matrix; names every reason.
    """
    if reasons := [*_attention_faults(model), *_logit_faults(model)]:
        raise ValueError(
            f"{model.config.name_or_path} has {', '.join(reasons)}; only models with plain causal "
            "attention in every layer, and logits that are the last hidden states times one "
            "matrix, can be trained: choose one of those"
        )


def _attention_faults(model: PreTrainedModel) -> list[str]:
    config = model.config
    layer_types = getattr(config, "layer_types", None)
    faults = [f"{key} = {getattr(config, key)}" for key in NOT_PLAIN if getattr(config, key, None)]
    if layer_types is not None and set(layer_types) != {"full_attention"}:
        faults.append(f"layer_types = {sorted(set(layer_types))}")
    if layer_types is None and getattr(config, "sliding_window", None) is not None:
        faults.append(f"sliding_window = {config.sliding_window}")
    if not model.is_backend_compatible() or model._is_stateful:
        faults.append(f"model_type = {config.model_type}")
    return faults


def _logit_faults(model: PreTrainedModel) -> list[str]:
    settings = {key: getattr(model.config, key, None) for key in LOGIT_TRANSFORMS}
    faults = [f"{key} = {value}" for key, value in settings.items() if value not in (None, 1.0)]
    if getattr(model.get_output_embeddings(), "bias", None) is not None:
        faults.append("a bias in its output layer")
    return faults
