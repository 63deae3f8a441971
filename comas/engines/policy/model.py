"""The language model as training sees it: log-probs of response tokens, and entropies."""

import torch
from torch import nn
from transformers import PreTrainedModel

from comas.engines.policy.attention import PACKED
from comas.policy_optimization.batching import MicroBatch
from comas.policy_optimization.logprobs import token_logprobs


class ResponseHead(nn.Module):
    """The language model's output layer as log-probs of given tokens.

    A module of its own, since ZeRO-3 gathers the weights that a module holds while it
    computes, forward and backward.
    """

    def __init__(self, output_layer: nn.Linear) -> None:
        super().__init__()
        self.weight = output_layer.weight

    def forward(
        self, hidden: torch.Tensor, token_ids: torch.Tensor, temperature: float | torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probs [n] of ``token_ids`` [n] after the last hidden states [n, H], and the
        entropies [n] of their distributions."""
        return token_logprobs(hidden, self.weight, token_ids, temperature=temperature)


class ResponseModel(nn.Module):
    """Computes response log-probs and entropies at the sampling temperature."""

    pads = False
    """True if each sample has a row of its own; see ``comas.engines.policy.padded``."""

    def __init__(self, language_model: PreTrainedModel) -> None:
        super().__init__()
        self.language_model = language_model
        self.head = self._head(language_model)

    @property
    def shares_prompts(self) -> bool:
        """True if samples may lie behind one copy of their prompt, as no other attention can."""
        return self.language_model.config._attn_implementation == PACKED

    def forward(self, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probs [B, R] of a micro batch, and the entropy of the distribution of each of its
        response tokens [B, R] (not differentiable); float32, 0 where its mask is False."""
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
        """The last hidden states [n, H] at the places ``predicting``."""
        hidden = self.language_model.base_model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            use_cache=False,
            # Attention keeps the samples apart by these, here and in FlashAttention.
            cu_seq_lens_q=batch.boundaries,
            cu_seq_lens_k=batch.key_boundaries,
            max_length_q=batch.longest,
            max_length_k=batch.most_keys,
            key_places=batch.key_places,
        ).last_hidden_state
        return hidden[0, batch.predicting]
