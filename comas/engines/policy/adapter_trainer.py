"""One rank of the training of one policy that is a LoRA adapter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from comas.engines.policy.adapters import SharedBase
from comas.engines.policy.engine import Compute
from comas.engines.policy.model import ResponseModel
from comas.engines.policy.trainer import PolicyTrainer
from comas.types import TrainingSample, UpdateStats


class AdapterTrainer(PolicyTrainer):
    """Trains one adapter of a base model that other adapters share, with an optimiser of its own.

    Other adapters of the base are trained in between. The reference of a KL penalty is the base
    itself. On a GPU that is shared with a rollout engine all states stay: beside the base they are
    small.

    Args:
        base: holds the adapter of ``index`` among others.
        index: the policy.
        others: arguments of ``PolicyTrainer``.
    """

    _is_whole = False

    def __init__(self, model_path: str, *, base: SharedBase, index: int, **others: Any) -> None:
        self._shared = base
        self._index = index
        base.activate(index)
        super().__init__(model_path, **others)

    def update(self, samples: Sequence[TrainingSample], *, step: int) -> UpdateStats:
        """Update the adapter as ``PolicyTrainer`` updates a whole model."""
        self._shared.activate(self._index)
        return super().update(samples, step=step)

    def response_logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """Return the log-probs of each response's tokens under the adapted model."""
        self._shared.activate(self._index)
        return super().response_logprobs(samples)

    def copy_checkpoint(self, folder: Path) -> None:
        """Copy the state of the adapter alone."""
        self._shared.activate(self._index)  # DeepSpeed leaves out what is frozen
        super().copy_checkpoint(folder)

    def save_model(self, folder: Path) -> None:
        """Write the adapter in PEFT's format, with tokenizer and chat template of the base."""
        if self._rank == 0:
            self._shared.save(self._index, folder)
        distributed.barrier()

    def offload_states(self) -> None:
        """Give back what the allocator holds unused."""
        torch.cuda.empty_cache()

    def reload_states(self) -> None:
        """Do nothing, as no state has left the GPU."""

    def _load_model(self) -> ResponseModel:
        return self._shared.model

    def _load_reference(self) -> Compute:
        return self._shared.without_adapter
