"""What one rank takes of an update, as indices into the policy's buffer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from comas.config.schema import Optimization, Policy
from comas.policy_optimization.batching import split_into_micro_batches, split_into_steps
from comas.types import TrainingSample


@dataclass(frozen=True)
class Shares:
    """Divides a buffer into optimiser steps, and those into the micro batches of a rank.

    Under the loss "dpo" samples 0 and 1, 2 and 3, ... are pairs, which are never parted.
    """

    policy: Policy
    optimization: Optimization
    seed: int
    rank: int
    num_ranks: int

    def optimizer_steps(self, num_samples: int, *, step: int) -> list[list[int]]:
        """Sample indices of every optimiser step of the update, all epochs in order; the same on
        every rank."""
        size = self.optimization.train_batch_size
        return [
            self._samples_of(units)
            for epoch in range(self.optimization.epochs_per_buffer)
            for units in split_into_steps(
                num_samples // self._unit,
                train_batch_size=None if size is None else max(1, size // self._unit),
                rng=Random(f"{self.seed}/{step}/{epoch}"),
            )
        ]

    def micro_batches(
        self, samples: Sequence[TrainingSample], indices: Sequence[int]
    ) -> list[list[int]]:
        """This rank's share of ``indices``, as micro batches of indices into ``samples``.

        Every rank has as many, the last ones possibly empty.
        """
        lengths = [
            sum(
                len(samples[i].prompt_token_ids) + len(samples[i].response_token_ids)
                for i in indices[start : start + self._unit]
            )
            for start in range(0, len(indices), self._unit)
        ]
        shares = split_into_micro_batches(
            lengths,
            micro_batch_size=self.policy.micro_batch_size,
            micro_batch_tokens=self.policy.micro_batch_tokens,
            num_ranks=self.num_ranks,
        )
        return [[indices[i] for i in self._samples_of(units)] for units in shares[self.rank]]

    @property
    def _unit(self) -> int:
        """Samples that stay together."""
        return 2 if self.optimization.loss == "dpo" else 1

    def _samples_of(self, units: Iterable[int]) -> list[int]:
        """Sample indices of units: of pairs [2, 0] the samples [4, 5, 0, 1]."""
        return [unit * self._unit + i for unit in units for i in range(self._unit)]
