"""The language model in training: log-probs of response tokens, and entropies.

Samples are packed into one row where ``why_padded`` allows it. Otherwise each has its own row: that
is slower, but correct for every causal language model, such as those with sliding windows, linear
attention, sinks or soft caps.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from comas.config.schema import Policy
from comas.engines.policy.architecture import (
    check_trainable,
    why_padded,
    with_fixed_rope,
    without_dropout,
)
from comas.engines.policy.attention import PACKED
from comas.policy_optimization.batching import MicroBatch
from comas.policy_optimization.logprobs import CHUNK_SIZE, token_logprobs


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


class ResponseModel(nn.Module):
    """Computes response log-probs and entropies at the sampling temperature."""

    pads = False
    """True if each sample has its own row; see ``PaddedModel``."""

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


class PaddedModel(ResponseModel):
    """A ``ResponseModel`` with one row per sample, padded at its end, where no earlier token can
    attend to the padding: the model's own mask suffices."""

    pads = True

    def _head(self, language_model: PreTrainedModel) -> nn.Module:
        return OwnHead(language_model)

    def _predicting_states(self, batch: MicroBatch) -> torch.Tensor:
        assert batch.key_places is None, "a row holds one sample"
        lengths = batch.boundaries.diff()
        rows = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
        [columns] = batch.position_ids
        input_ids = batch.input_ids.new_zeros(len(lengths), batch.longest)
        input_ids[rows, columns] = batch.input_ids[0]
        hidden = self.language_model.base_model(input_ids=input_ids, use_cache=False)[0]
        return hidden[rows[batch.predicting], columns[batch.predicting]]


class OwnHead(nn.Module):
    """Everything that a language model computes after its last layer, as log-probs of given tokens.

    Logits exist for ``CHUNK_SIZE / 2`` tokens at once, and are recomputed in the backward pass. The
    module holds the output layer's weights, so that ZeRO-3 gathers them once for all chunks, whose
    number differs between ranks.
    """

    def __init__(self, language_model: PreTrainedModel) -> None:
        super().__init__()
        output_layer = language_model.get_output_embeddings()
        for name, parameter in output_layer.named_parameters():
            self.register_parameter(name, parameter)
        stand_ins = {language_model.base_model: _Given(), output_layer: _unhooked(output_layer)}
        after_layers = copy.copy(language_model)
        after_layers._modules = {
            name: module if module is None else stand_ins.get(module, module)
            for name, module in language_model._modules.items()
        }
        self._after_layers = (after_layers,)  # a tuple, so that it is not a submodule

    def forward(
        self, hidden: torch.Tensor, token_ids: torch.Tensor, temperature: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Do what ``ResponseHead.forward`` does."""
        parts = (each.split(CHUNK_SIZE // 2) for each in (hidden, token_ids, temperature))
        pieces = [
            checkpoint(self._piece, *piece, use_reentrant=False)
            for piece in zip(*parts, strict=True)
        ]
        logprobs, entropies = zip(*pieces, strict=True)
        return torch.cat(logprobs), torch.cat(entropies)

    def _piece(
        self, hidden: torch.Tensor, token_ids: torch.Tensor, temperature: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        [after_layers] = self._after_layers
        # Trap: calling modules, not their forward, would run DeepSpeed's hooks.
        logits = after_layers.forward(inputs_embeds=hidden[None], use_cache=False).logits[0]
        logprobs = (logits.float() / temperature[:, None]).log_softmax(dim=-1)
        with torch.no_grad():
            entropies = torch.special.entr(logprobs.exp()).sum(dim=-1)
        return logprobs.gather(1, token_ids[:, None])[:, 0], entropies


class _Given(nn.Module):
    """Takes the place of the layers, or a part of them, and returns a given result."""

    def __getattr__(self, name: str) -> _Given:
        return self

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> _Hidden:
        return _Hidden((inputs_embeds,))


class _Hidden(tuple):
    """The layers' output, with the last hidden states only."""

    def __getattr__(self, name: str) -> torch.Tensor | None:
        return self[0] if name == "last_hidden_state" else None


def _unhooked(layer: nn.Module) -> nn.Module:
    """Return a layer with the same weights, without the hooks that DeepSpeed will register."""
    plain = copy.copy(layer)
    plain._forward_hooks, plain._forward_pre_hooks = OrderedDict(), OrderedDict()
    return plain
