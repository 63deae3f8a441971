"""Tiny random models of any type in transformers."""

from pathlib import Path
from typing import Any

import torch
from tables import case_file
from tiny_models import SHAPE, add_noise, byte_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

SMALL, CHANGES = case_file("model_types").values()


def tiny_config(model_type: str, **changes: Any) -> PretrainedConfig:
    """A configuration with four small layers."""
    kind = type(AutoConfig.for_model(model_type))
    known = vars(kind())
    small = SHAPE | {"num_hidden_layers": 4} | SMALL
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
    add_noise(model)
    return model


def save_model_type(folder: Path, model_type: str, **changes: Any) -> Path:
    """Write a tiny model with its tokenizer in Hugging Face format; return the folder."""
    tiny_model(model_type, **changes).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder
