"""The language model in training: log-probs of response tokens, and entropies."""

import torch
from torch import nn
from transformers import PreTrainedModel

from comas.engines.policy.attention import PACKED
from comas.policy_optimization.batching import MicroBatch
from comas.policy_optimization.logprobs import token_logprobs


class ResponseHead(nn.Module):
    """The output layer, computing log-probs of given tokens. A module of its own, since ZeRO-3
    gathers a module's weights while it computes."""

    def __init__(self, output_layer: nn.Linear) -> None:
        super().__init__()
        self.weight = output_layer.weight

    def forward(
        self, hidden: torch.Tensor, token_ids: torch.Tensor, temperature: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probs [n] of ``token_ids`` [n] given the last hidden states [n, H] and
        temperatures [n], and entropies [n]."""
        return token_logprobs(hidden, self.weight, token_ids, temperature=temperature)


class ResponseModel(nn.Module):
    """Computes response log-probs and entropies at the sampling temperature."""

    pads = False
    """True if each sample has its own row; see ``comas.engines.policy.padded``."""

    def __init__(self, language_model: PreTrainedModel) -> None:
        super().__init__()
        self.language_model = language_model
        self.head = self._head(language_model)

    @property
    def shares_prompts(self) -> bool:
        """True if samples may share one copy of their prompt, which needs ``packed_attention``."""
        return self.language_model.config._attn_implementation == PACKED

    def forward(self, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probs [B, R] of a micro batch's response tokens, and entropies [B, R] (not
        differentiable); float32, 0 where the mask is False."""
        logprobs, entropies = self.head(
            self._predicting_states(batch), batch.response_ids, batch.temperature
        )
        padded = logprobs.new_zeros(batch.mask.shape)
        return (
            padded.masked_scatter(batch.mask, logprobs),
            padded.masked_scatter(batch.mask, entropies),
        )

    def _head(self, language_model: PreTrainedModel) -> nn.Module:
        return ResponseHead(language_model.get_output_embeddings())

    def _predicting_states(self, batch: MicroBatch) -> torch.Tensor:
        """Return the last hidden states [n, H] at the positions ``predicting``."""
        hidden = self.language_model.base_model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            use_cache=False,
            # These separate the samples, here and in FlashAttention.
            cu_seq_lens_q=batch.boundaries,
            cu_seq_lens_k=batch.key_boundaries,
            max_length_q=batch.longest,
            max_length_k=batch.most_keys,
            key_places=batch.key_places,
        ).last_hidden_state
        return hidden[0, batch.predicting]
