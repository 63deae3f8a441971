"""Compute log-probs and entropies from hidden states without holding all logits."""

from typing import Any

import torch

CHUNK_SIZE = 512
"""Number of tokens whose logits are held at once. Smaller chunks save memory, but each one updates
the whole gradient of the output layer."""

PIECE_SIZE = 32
"""Number of tokens whose probabilities are held beside the logits."""


def token_logprobs(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    token_ids: torch.Tensor,
    *,
    temperature: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-prob [n] of each token under the logits ``hidden @ weight.T / temperature``,
    and the entropy [n] of its distribution, in nats.

    Args:
        hidden: [n, H], the input of the output layer.
        weight: [V, H], that of the output layer. Log-probs are differentiable with respect to
            hidden and weight; entropies are not differentiable.
        token_ids: [n]
        temperature: [n], that of the rollout.

    Logits are in the dtype of ``hidden``, the softmax and the result in float32. (That of
    ``torch.nn.functional.linear_cross_entropy`` is as coarse as ``hidden``: in bfloat16 a
    log-prob of -5 would be off by 0.01.)
    """
    return _TokenLogprobs.apply(hidden, weight, token_ids, temperature)


class _TokenLogprobs(torch.autograd.Function):
    """Computes logits chunk by chunk, and again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        token_ids: torch.Tensor,
        temperature: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs, entropies, normalisers = hidden.new_empty(3, len(token_ids), dtype=torch.float32)
        for chunk in _chunks(len(token_ids)):
            logprobs[chunk], entropies[chunk], normalisers[chunk] = _normalise(
                _logits(hidden[chunk], weight, temperature[chunk, None]), token_ids[chunk, None]
            )
        ctx.save_for_backward(hidden, weight, token_ids, normalisers)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Any:  # type: ignore[override]
        hidden, weight, token_ids, normalisers = ctx.saved_tensors
        hidden_gradient = torch.empty_like(hidden)
        weight_gradient = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        for chunk in _chunks(len(token_ids)):
            temperature = ctx.temperature[chunk, None]
            logits_gradient = _logits(hidden[chunk], weight, temperature)
            # d log p(token) / d logits = (one-hot of the token - p) / temperature
            scale = gradient[chunk, None] / temperature
            logits_gradient.sub_(normalisers[chunk, None]).exp_().mul_(-scale)
            logits_gradient.scatter_add_(1, token_ids[chunk, None], scale)
            logits_gradient = logits_gradient.to(weight.dtype)
            hidden_gradient[chunk] = logits_gradient @ weight
            if weight_gradient is not None:  # not frozen, as under LoRA
                weight_gradient.addmm_(logits_gradient.T, hidden[chunk])
            del logits_gradient  # free it before the next chunk's
        return hidden_gradient, weight_gradient, None, None


def _logits(hidden: torch.Tensor, weight: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    return (hidden @ weight.T).float().div_(temperature)


def _normalise(
    logits: torch.Tensor, token_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log-probs [n] of ``token_ids`` [n, 1], entropies [n] and the logits' log-sum-exp [n].
    Overwrites ``logits`` to save memory."""
    largest = logits.amax(dim=1)
    chosen = logits.sub_(largest[:, None]).gather(1, token_ids)[:, 0]
    pieces = [_sums(piece) for piece in logits.split(PIECE_SIZE)]
    weight_sums, product_sums = (torch.cat(sums) for sums in zip(*pieces, strict=True))
    normalisers = weight_sums.log()
    # The entropy is the mean of -log p = log Z - logit.
    return chosen - normalisers, normalisers - product_sums / weight_sums, normalisers + largest


def _sums(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums of exp(logit), and of exp(logit) * logit, over the vocabulary."""
    weights = logits.exp()
    return weights.sum(dim=1), weights.mul_(logits).sum(dim=1)


def _chunks(num_tokens: int) -> list[slice]:
    return [slice(start, start + CHUNK_SIZE) for start in range(0, num_tokens, CHUNK_SIZE)]
