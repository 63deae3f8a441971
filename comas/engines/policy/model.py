"""The language model as training sees it: log-probs of response tokens."""

from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from comas.policy_optimization.batching import MicroBatch
from comas.policy_optimization.losses import token_logprobs

LOGIT_TRANSFORMS = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings of models (Gemma 2, Cohere, Granite) whose logits are more than a linear map."""


class ResponseModel(nn.Module):
    """Computes response log-probs at the sampling temperature.

    Logits, by far the largest tensor of an update, are computed only at positions that
    predict a response token.
    """

    def __init__(self, language_model: PreTrainedModel, *, temperature: float) -> None:
        super().__init__()
        self.language_model = language_model
        self.temperature = temperature

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        """Log-probs [B, R] of a micro batch, float32, 0 where its mask is False."""
        hidden = self.language_model.base_model(
            input_ids=batch.input_ids, use_cache=False
        ).last_hidden_state
        logits = self.language_model.get_output_embeddings()(hidden[batch.predicts])
        logprobs = token_logprobs(logits, batch.response_ids, temperature=self.temperature)
        return logprobs.new_zeros(batch.mask.shape).masked_scatter(batch.mask, logprobs)


def load_response_model(
    folder: Path, *, dtype: torch.dtype, attn_implementation: str, temperature: float
) -> ResponseModel:
    """Load a causal language model in full.

    Plain loading on every rank, never under DeepSpeed's zero.Init: that may fill shards
    with wrong weights.

    Raises:
        ValueError: the model's logits are not the output of its last linear layer.
    """
    language_model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation=attn_implementation
    )
    for key in LOGIT_TRANSFORMS:
        value = getattr(language_model.config, key, None)
        if value not in (None, 1.0):
            raise ValueError(
                f"society.models: {folder} sets {key} = {value}; models that transform their "
                "logits are not supported, choose one that does not"
            )
    return ResponseModel(language_model, temperature=temperature)
