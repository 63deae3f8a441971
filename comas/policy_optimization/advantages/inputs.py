"""What every advantage estimator is given."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class AdvantageInputs:
    """One policy's whole buffer of N responses, padded on the right to T tokens.

    Example: two responses of 2 and 1 tokens, the first rewarded, without a reference model::

        AdvantageInputs(
            rewards=tensor([1.0, 0.0]),
            mask=tensor([[True, True], [True, False]]),
            k1=tensor([[0.0, 0.0], [0.0, 0.0]]),
            groups=[("math/17", "solution"), ("math/17", "solution")],
            discount=1.0,
            kl_coef=0.0,
        )
    """

    rewards: torch.Tensor
    """[N]: r(o), one per response."""
    mask: torch.Tensor
    """[N, T] bool, True = response token; True up to the response's length, then False."""
    k1: torch.Tensor
    """[N, T]: log(pi_theta / pi_ref) of each token; zeros without a reference model."""
    groups: Sequence[Hashable]
    """[N]: key of the group that each response belongs to."""
    discount: float
    """gamma of the token returns."""
    kl_coef: float
    """beta of the KL penalty."""
    memory: dict[Hashable, float] = field(default_factory=dict)
    """What an estimator has kept from earlier updates; it may change it. It starts empty, and is
    part of the policy's checkpoint."""

    def on_every_token(self, advantages: torch.Tensor) -> torch.Tensor:
        """One advantage for each response [N], on all of its tokens: [N, T] float32.

        Example: advantages [2, 3] of responses of 2 and 1 tokens: [[2, 2], [3, 0]].
        """
        return (advantages[:, None] * self.mask).float()
