"""Tiny random models of any type in transformers."""

from pathlib import Path
from typing import Any

import torch
from tiny_models import SHAPE, byte_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

EXPERTS = {
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("moe_num_experts", "num_experts_per_tok", "moe_k", "moe_topk"), 2),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 64),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "first_k_dense_replace"), 1),
}
OTHER_NAMES = {
    **{"n_embd": 64, "n_head": 2, "n_layer": 4, "n_positions": 1024},
    **{"ffn_dim": 128, "word_embed_proj_dim": 64, "head_dim": 32},
}
"""The names of GPT-2 and OPT."""
LINEAR = {
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 32),
}
CHANGES: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 8},
    "phi3": {
        **{"sliding_window": None, "original_max_position_embeddings": 100},
        "rope_parameters": {
            **{"rope_type": "longrope", "rope_theta": 1e4},
            **{"short_factor": [1.5] * 16, "long_factor": [4.0] * 16},
        },
    },
    "mixtral": {"sliding_window": None},
    "gemma2": {"sliding_window": 8, "final_logit_softcapping": 2.0, "attn_logit_softcapping": 1.0},
    "gemma3_text": {"sliding_window": 8, "final_logit_softcapping": 2.0},
    "gemma4_text": {
        **{"sliding_window": 8, "global_head_dim": 32, "final_logit_softcapping": 2.0},
        **{"hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 259},
    },
    "gpt_oss": {"sliding_window": 8},
    "olmo3": {"sliding_window": 8},
    "cohere2": {"sliding_window": 8},
    "granite": {"logits_scaling": 3.0},
    "bloom": {"hidden_size": 64, "n_head": 2, "n_layer": 2},
    "mamba2": {
        **{"num_hidden_layers": 4, "num_heads": 4, "head_dim": 32, "state_size": 16},
        **{"n_groups": 1, "expand": 2, "chunk_size": 16},
    },
    "deepseek_v3": {
        "topk_method": "noaux_tc",
        **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "v_head_dim"), 32),
        **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "head_dim"), 16),
    },
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
}


def tiny_config(model_type: str, **changes: Any) -> PretrainedConfig:
    """A configuration with four small layers."""
    kind = type(AutoConfig.for_model(model_type))
    known = vars(kind())
    small = SHAPE | {"num_hidden_layers": 4} | OTHER_NAMES | EXPERTS | LINEAR
    asked = {name: value for name, value in small.items() if name in known}
    if model_type in ("bloom", "mamba2"):  # their heads differ
        asked = {name: asked[name] for name in asked.keys() & {"vocab_size", "hidden_size"}}
    return kind(**asked | CHANGES.get(model_type, {}) | changes)


def tiny_model(model_type: str, **changes: Any) -> PreTrainedModel:
    """A float32 model whose distributions are far from uniform."""
    config = tiny_config(model_type, **changes)
    with torch.device("meta"):
        num_parameters = AutoModelForCausalLM.from_config(config).num_parameters()
    assert num_parameters < 3_000_000, f"{model_type} is not tiny: {num_parameters} parameters"
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def save_model_type(folder: Path, model_type: str, **changes: Any) -> Path:
    """Write a tiny model with its tokenizer in Hugging Face format; return the folder."""
    tiny_model(model_type, **changes).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder
