"""Losses beyond the paper's, each for ``algorithm.name=custom``, such as::

    algorithm: {name: custom, estimator: grpo, loss: comas.ideas.losses:gspo}

They differ from the paper's only if a buffer gives several optimiser steps
(``optimization.train_batch_size``, ``epochs_per_buffer``), as in the first every ratio is 1. DAPO's
loss (arXiv 2503.14476, eq. 8) is the paper's with ``algorithm.clip_epsilon_high``
(``configs/ideas/dapo.yaml``). None has been studied yet.
"""

import torch

from comas.policy_optimization.losses import LossInputs, TokenLosses


def gspo(inputs: LossInputs) -> TokenLosses:
    """GSPO-token (arXiv 2507.18071, eq. 7 and 13): the clipped surrogate with one ratio for the
    whole response y, where sg[] stops gradients::

        s   = (pi_theta(y) / pi_old(y))^(1 / |y|)
        s_t = sg[s] * pi_theta(y_t) / sg[pi_theta(y_t)]
        -min(s_t * A_t, clip(s_t, 1 - eps_low, 1 + eps_high) * A_t)

    If all tokens of a response have the same advantage, value and gradient are those of GSPO
    (eq. 5). Use it with ``loss_aggregation: sequence_mean`` and epsilons of 3e-4 and 4e-4.

    Example: ratios 1.44 and 1 make s = 1.2 on both tokens.
    """
    log_ratios = (inputs.logprobs - inputs.old_logprobs).detach() * inputs.mask
    num_tokens = inputs.mask.sum(dim=1, keepdim=True).clamp(min=1)
    mean = log_ratios.sum(dim=1, keepdim=True) / num_tokens
    ratio = (mean + inputs.logprobs - inputs.logprobs.detach()).exp()
    low, high = inputs.clip_epsilon
    gain = ratio * inputs.advantages
    clipped_gain = ratio.clamp(1 - low, 1 + high) * inputs.advantages
    return TokenLosses(-torch.min(gain, clipped_gain), clipped_gain < gain)
