"""REINFORCE++: discounted token returns, whitened over the buffer."""

import torch

from comas.policy_optimization.advantages.inputs import AdvantageInputs

VARIANCE_FLOOR = 1e-8


def reinforce_pp(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T] of equations 9 and 10 (zeros where the mask is False).

    The token reward is -beta * k1_t, plus r(o) on the last token; with gamma = 1 its
    reverse cumulative sum is equation 9::

        A_t = r(o) - beta * sum_{u >= t} log(pi_theta / pi_ref)_u

    which is then whitened over all response tokens of the buffer (equation 10)::

        (A - mean) / sqrt(max(variance, 1e-8))

    with the population variance. The floor keeps a buffer of equal returns at zero. Groups
    are not read. Source: arXiv 2501.03262; parity with OpenRLHF's "reinforce" is tested.
    """
    return whiten(token_returns(inputs), inputs.mask)


def token_returns(inputs: AdvantageInputs) -> torch.Tensor:
    """Returns A_t [N, T] of equation 9, in float64.

    Example: reward 1, beta 0.1, k1 = [2, 1] over two tokens, gamma 1: the token rewards
    [-0.2, 0.9] give the returns [0.7, 0.9].
    """
    token_rewards = -inputs.kl_coef * inputs.k1.double() * inputs.mask
    last_token = inputs.mask.sum(dim=1, keepdim=True) - 1
    token_rewards = token_rewards.scatter_add(1, last_token, inputs.rewards.double()[:, None])
    returns = torch.zeros_like(token_rewards)
    running = torch.zeros_like(token_rewards[:, 0])
    for t in range(token_rewards.shape[1] - 1, -1, -1):
        running = token_rewards[:, t] + inputs.discount * running
        returns[:, t] = running
    return returns


def whiten(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(values - mean) / standard deviation over the True entries of ``mask``; float32.

    Computed in float64: in float32 the rounding of the mean of equal values, divided by the
    floored deviation 1e-4, would no longer be zero.
    """
    values = values.double()
    num_tokens = mask.sum().clamp(min=1)
    mean = (values * mask).sum() / num_tokens
    centered = (values - mean) * mask
    variance = centered.square().sum() / num_tokens
    return (centered * variance.clamp(min=VARIANCE_FLOOR).rsqrt()).float()
