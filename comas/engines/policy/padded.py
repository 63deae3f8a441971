"""Training with a model's own forward pass and head, one row per sample.

Slower than packed rows (see ``comas.engines.policy.architecture.why_padded``), but correct for
every causal language model: sliding windows, linear attention, sinks, soft caps.
"""

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from comas.engines.policy.model import ResponseModel
from comas.policy_optimization.batching import MicroBatch
from comas.policy_optimization.logprobs import CHUNK_SIZE


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

    def __getattr__(self, name: str) -> "_Given":
        return self

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> "_Hidden":
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
