"""Loading a language model for training, packed or padded."""

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from comas.config.schema import Policy
from comas.engines.policy.architecture import (
    check_trainable,
    why_padded,
    with_fixed_rope,
    without_dropout,
)
from comas.engines.policy.attention import PACKED
from comas.engines.policy.model import ResponseModel
from comas.engines.policy.padded import PaddedModel


def load_response_model(folder: Path, policy: Policy, *, max_model_len: int) -> ResponseModel:
    """Load a whole causal language model, with the settings of ``policy`` and the positions of an
    engine of ``max_model_len`` tokens.

    Never under DeepSpeed's zero.Init, which may fill shards with wrong weights.

    Raises ValueError when its files lack weights, or it cannot be trained.
    """
    asks_sdpa = policy.attn_implementation == "sdpa"
    config = without_dropout(AutoConfig.from_pretrained(folder))
    config = with_fixed_rope(config, max_model_len)
    # PyTorch's kernels would ignore a soft cap; None is transformers' choice.
    has_soft_cap = getattr(config.get_text_config(), "attn_logit_softcapping", None)
    attention = "eager" if has_soft_cap else None
    language_model, found = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=getattr(torch, policy.dtype),
        attn_implementation=attention if asks_sdpa else policy.attn_implementation,
        output_loading_info=True,
    )
    if missing := sorted(found["missing_keys"]):
        raise ValueError(
            f"society.models: the safetensors files in {folder} lack {len(missing)} weights of the "
            f"model, first {missing[0]!r}: get it again"
        )
    check_trainable(language_model)
    if why_padded(language_model) is not None:
        return PaddedModel(language_model)
    if asks_sdpa:
        language_model.set_attn_implementation(PACKED)
    return ResponseModel(language_model)
