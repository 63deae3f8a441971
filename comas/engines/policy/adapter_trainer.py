"""One rank of the training of one policy that is a LoRA adapter."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from comas.engines.policy.adapters import SharedBase
from comas.engines.policy.engine import Compute
from comas.engines.policy.model import ResponseModel
from comas.engines.policy.trainer import PolicyTrainer
from comas.engines.policy.weights import WeightMetadata
from comas.types import TrainingSample, UpdateStats


class AdapterTrainer(PolicyTrainer):
    """Trains one adapter of a base model that other adapters share, with an optimiser of its own.

    Other adapters of the base are trained in between. "Weights" are those of the adapter, under
    PEFT's names. The reference of a KL penalty is the base itself. On a GPU that is shared
    with a rollout engine all states stay: beside the base they are small.

    Args:
        base: holds the adapter of ``index`` among others.
        index: the policy.
        others: arguments of ``PolicyTrainer``.
    """

    _is_whole = False

    def __init__(self, model_path: str, *, base: SharedBase, index: int, **others: Any) -> None:
        self._shared = base
        self._index = index
        self._activate()
        super().__init__(model_path, **others)

    def update(self, samples: Sequence[TrainingSample], *, step: int) -> UpdateStats:
        """Update the adapter as ``PolicyTrainer`` updates a whole model."""
        self._activate()
        return super().update(samples, step=step)

    def response_logprobs(self, samples: Sequence[TrainingSample]) -> list[torch.Tensor]:
        """The log-probs of each response's tokens under the adapted model."""
        self._activate()
        return super().response_logprobs(samples)

    def named_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every weight of the adapter; ZeRO divides none of them."""
        for name, weight in self._shared.weights(self._index):
            yield name, weight.detach()

    def weight_metadata(self) -> list[WeightMetadata]:
        """Name, dtype and shape of every weight of the adapter."""
        return [
            WeightMetadata(name, weight.dtype, tuple(weight.shape))
            for name, weight in self._shared.weights(self._index)
        ]

    def copy_checkpoint(self, folder: Path) -> None:
        """Copy the state of the adapter alone."""
        self._activate()  # DeepSpeed leaves out what is frozen
        super().copy_checkpoint(folder)

    def save_model(self, folder: Path) -> None:
        """Write the adapter in PEFT's format, with tokenizer and chat template of the base."""
        if self._rank == 0:
            self._shared.save(self._index, folder)
        distributed.barrier()

    def offload_states(self) -> None:
        """Give back what the allocator holds unused."""
        self.release_cache()

    def reload_states(self) -> None:
        """Do nothing, as no state has left the GPU."""

    def _activate(self) -> None:
        self._shared.activate(self._index)

    def _load_model(self) -> ResponseModel:
        return self._shared.model

    def _check_loaded(self) -> None:
        """The base was compared with its files before it had adapters."""

    def _load_reference(self) -> Compute:
        return self._shared.without_adapter
