"""Truncated importance sampling, for ``algorithm.rollout_correction``."""

import torch


def correction_weights(
    correction: str, log_ratios: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weight of each token's loss [B, R], and which tokens are beyond the bounds [B, R].

    ``log_ratios`` [B, R] are log(pi_old / pi_rollout). tis: the weight is the ratio, clipped to
    [0, 2]. icepop: the ratio, or 0 beyond [0.5, 5]. seq_mask_tis: the ratio, or 0 in a response
    whose geometric mean of ratios is beyond [0.5, 5].
    """
    compared = log_ratios
    if correction == "seq_mask_tis":
        mean = (log_ratios * mask).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True)
        compared = mean.expand(mask.shape)
    ratios = compared.exp()
    low, high = (0.0, 2.0) if correction == "tis" else (0.5, 5.0)
    is_beyond = ~((ratios >= low) & (ratios <= high))
    if correction == "tis":
        return ratios.clamp(low, high), is_beyond
    return torch.where(is_beyond, 0.0, log_ratios.exp()), is_beyond
