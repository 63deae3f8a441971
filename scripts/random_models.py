"""Random models, made on the spot, for benchmarks and checks: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from comas.quickstart.tokenizers import CHAT_FORMATS, build_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, Qwen2Config


def qwen2_config(
    *,
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    vocab_size: int,
    intermediate_size: int = 0,
    num_kv_heads: int = 0,
    max_tokens: int = 1024,
    dtype: str = "float32",
) -> Qwen2Config:
    """The configuration of a Qwen2 model: an ``intermediate_size`` of 0 stands for three times the
    hidden size, ``num_kv_heads`` of 0 for as many as there are heads."""
    from transformers import Qwen2Config

    return Qwen2Config(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size or 3 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads or num_heads,
        max_position_embeddings=max_tokens,
        tie_word_embeddings=True,
        pad_token_id=0,
        dtype=dtype,
    )


def save_random_model(
    folder: Path, config: Qwen2Config, *, has_tokenizer: bool = True
) -> PreTrainedModel:
    """Write a random model of ``config`` in Hugging Face format, by default with a tokenizer and
    chat template, for which the vocabulary may have to grow."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    if has_tokenizer:
        tokenizer = build_tokenizer(CHAT_FORMATS["qwen2"])
        tokenizer.save_pretrained(folder)
        config.vocab_size = max(config.vocab_size, len(tokenizer))
        config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    model = AutoModelForCausalLM.from_config(config, dtype=config.dtype)
    model.save_pretrained(folder)
    return model
