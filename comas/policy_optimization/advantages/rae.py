"""RAE: rewards relative to what an agent has earned in a role so far."""

import torch

from comas.policy_optimization.advantages.inputs import AdvantageInputs

DECAY = 0.95


def rae(inputs: AdvantageInputs) -> torch.Tensor:
    """Advantages [N, T], the same on every token of a response (zeros where masked).

    Each group (an agent in a role) has a baseline b that begins at 0 and moves with every
    response, in the order of the buffer, after the response was compared with it::

        A = r - b        b <- 0.95 b + 0.05 r

    The baselines are ``inputs.memory``, which lasts from update to update. They approach a
    constant reward, so its advantage fades but is not 0 at first. KL is a term of the loss
    (k3). Source: role-conditioned advantage estimation of SPIRAL, arXiv 2506.24119.

    Example: the rewards 1, 1 of one group: advantages 1 and 0.95; b is then 0.0975.
    """
    baselines = inputs.memory
    advantages = []
    for group, reward in zip(inputs.groups, inputs.rewards.tolist(), strict=True):
        baseline = baselines.get(group, 0.0)
        advantages.append(reward - baseline)
        baselines[group] = DECAY * baseline + (1 - DECAY) * reward
    return inputs.on_every_token(torch.tensor(advantages, device=inputs.mask.device))
