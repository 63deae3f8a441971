"""Training by a model's own forward pass: a row for each sample, and the model's own head.

Slower than packed rows (``comas.engines.policy.architecture.why_padded`` says when those are
right), and right for every causal language model: sliding windows, linear attention, sinks, soft
caps.
"""

import copy
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from comas.engines.policy.model import ResponseModel
from comas.policy_optimization.batching import MicroBatch
from comas.policy_optimization.logprobs import CHUNK_SIZE


class PaddedModel(ResponseModel):
    """A ``ResponseModel`` that computes with a row for each sample, padded at its end. There no
    token before can see the padding, so that no mask is needed beside the model's own."""

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
    """All that a language model does after its last layer, as log-probs of given tokens.

    Logits are there for half of ``CHUNK_SIZE`` tokens at once, and are computed again in the
    backward pass. It holds the output layer's weights, which ZeRO-3 gathers once for all pieces:
    their number differs from rank to rank.
    """

    def __init__(self, language_model: PreTrainedModel) -> None:
        super().__init__()
        output_layer = language_model.get_output_embeddings()
        for name, parameter in output_layer.named_parameters():
            self.register_parameter(name, parameter)
        stand_ins = {language_model.base_model: _Given(), output_layer: _Unhooked(output_layer)}
        after_layers = copy.copy(language_model)
        after_layers._modules = {
            name: module if module is None else stand_ins.get(module, module)
            for name, module in language_model._modules.items()
        }
        self._after_layers = (after_layers,)  # no module of this one

    def forward(
        self, hidden: torch.Tensor, token_ids: torch.Tensor, temperature: float | torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what ``ResponseHead`` does."""
        temperatures = torch.as_tensor(temperature, device=hidden.device).expand(len(hidden))
        parts = (each.split(CHUNK_SIZE // 2) for each in (hidden, token_ids, temperatures))
        pieces = [
            checkpoint(self._piece, *piece, use_reentrant=False)
            for piece in zip(*parts, strict=True)
        ]
        logprobs, entropies = zip(*pieces, strict=True)
        return torch.cat(logprobs), torch.cat(entropies)

    def _piece(
        self, hidden: torch.Tensor, token_ids: torch.Tensor, temperatures: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        [after_layers] = self._after_layers
        # Trap: called as a module, it and its output layer would run DeepSpeed's hooks.
        logits = after_layers.forward(inputs_embeds=hidden[None], use_cache=False).logits[0]
        logprobs = (logits.float() / temperatures[:, None]).log_softmax(dim=-1)
        with torch.no_grad():
            entropies = torch.special.entr(logprobs.exp()).sum(dim=-1)
        return logprobs.gather(1, token_ids[:, None])[:, 0], entropies


class _Given(nn.Module):
    """Stands in for all layers, whose result is there, and for each part of them."""

    def __getattr__(self, name: str) -> "_Given":
        return self

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> "_Hidden":
        return _Hidden((inputs_embeds,))


class _Hidden(tuple):
    """What layers return, with nothing but the last hidden states in it."""

    def __getattr__(self, name: str) -> torch.Tensor | None:
        return self[0] if name == "last_hidden_state" else None


class _Unhooked(nn.Module):
    """A layer without the hooks that others have put on it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.__dict__["layer"] = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["layer"], name)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.__dict__["layer"].forward(states)
