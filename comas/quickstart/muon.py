"""Muon in float32, which every CPU computes fast; PyTorch's computes in bfloat16."""

from collections import defaultdict
from collections.abc import Iterable

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NUM_NEWTON_SCHULZ_STEPS = 5
NORM_FLOOR = 1e-7


class Muon(torch.optim.Optimizer):
    """Steps along the orthogonalised momentum of each matrix (Keller Jordan et al., 2024).

    With gradient G, momentum M and learning rate eta, for a matrix W of r rows and c columns::

        M <- mu M + (1 - mu) G
        W <- W - eta sqrt(max(1, r / c)) orthogonalise(mu M + (1 - mu) G)

    torch.optim.Muon orthogonalises in bfloat16, which is many times slower than float32 on CPUs
    without bfloat16 instructions.
    """

    def __init__(
        self, matrices: Iterable[torch.nn.Parameter], *, lr: float, momentum: float
    ) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every matrix; all must have gradients."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
            for matrix in group["params"]:
                by_shape[matrix.shape].append(matrix)
            for (rows, columns), matrices in by_shape.items():
                directions = orthogonalise(self._momenta(matrices, group["momentum"]))
                rate = group["lr"] * max(1, rows / columns) ** 0.5
                for matrix, direction in zip(matrices, directions, strict=True):
                    matrix.sub_(direction, alpha=rate)

    def _momenta(self, matrices: list[torch.nn.Parameter], momentum: float) -> torch.Tensor:
        """[N, r, c]: each matrix's Nesterov momentum."""
        nesterov = []
        for matrix in matrices:
            assert matrix.grad is not None
            state = self.state[matrix]
            if not state:
                state["momentum"] = torch.zeros_like(matrix)
            state["momentum"].lerp_(matrix.grad, 1 - momentum)
            nesterov.append(matrix.grad.lerp(state["momentum"], momentum))
        return torch.stack(nesterov)


def orthogonalise(matrices: torch.Tensor) -> torch.Tensor:
    """[N, r, c]: nearly the closest matrices whose singular values are all 1.

    Five Newton-Schulz steps X <- a X + (b X X^T + c (X X^T)^2) X from X / |X| bring all but the
    smallest singular values to between about 0.7 and 1.2.
    """
    a, b, c = COEFFICIENTS
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=NORM_FLOOR)
    for _ in range(NUM_NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x
