"""One rank of a family: the policies trained by one DeepSpeed group."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from comas.config.schema import Config
from comas.engines.policy.adapters import SharedBase
from comas.engines.policy.trainer import PolicyTrainer
from comas.policy_optimization.update_stats import UpdateStats
from comas.types import TrainingSample
from comas.utils.processes import return_free_memory


class FamilyTrainer:
    """Trains the policies of a family, one after another; methods are collective over its ranks.

    A family is one policy with its own model, or several LoRA adapters of one model.

    ``num_optimizer_steps`` are those expected of each policy of the run, ``others`` further
    arguments of ``PolicyTrainer``. Raises ValueError when the model cannot be used.
    """

    def __init__(
        self,
        model_path: str,
        config: Config,
        *,
        policies: Sequence[int],
        num_optimizer_steps: Sequence[int | None],
        **others: Any,
    ) -> None:
        self._base: SharedBase | None = None
        if config.policy.lora.rank is not None:
            self._base = SharedBase(model_path, config, policies=policies)
        self.trainers: dict[int, PolicyTrainer] = {}
        """Policy -> its trainer; none for frozen policies."""
        for index in policies:
            rate = config.learning_rates[index]
            own = replace(config, optimization=replace(config.optimization, learning_rate=rate))
            options = others | {"num_optimizer_steps": num_optimizer_steps[index]}
            adapter = {"shared": self._base, "index": index}
            self.trainers[index] = PolicyTrainer(model_path, own, **options, **adapter)

    def update(
        self, buffers: Mapping[int, Sequence[TrainingSample]], *, step: int
    ) -> dict[int, UpdateStats]:
        """Update each policy of ``buffers``; return policy -> result."""
        stats = {
            policy: self._active(policy).update(samples, step=step)
            for policy, samples in sorted(buffers.items())
        }
        return_free_memory()
        return stats

    def adapter(self, policy: int) -> dict[str, torch.Tensor]:
        """Return the adapter weights of ``policy`` on the CPU, under PEFT's names."""
        assert self._base is not None
        return self._base.weights(policy)

    def save_checkpoint(self, folder: Path) -> None:
        """Write the state of every policy to ``folder/policy_<i>``."""
        for policy in self.trainers:
            self._active(policy).save_checkpoint(folder / f"policy_{policy}")

    def load_checkpoint(self, folder: Path) -> None:
        """Restore what ``save_checkpoint`` wrote. Raises ValueError when a state is missing."""
        for policy, trainer in self.trainers.items():
            trainer.load_checkpoint(folder / f"policy_{policy}")

    def save_model(self, policy: int, folder: Path) -> None:
        """Write the model, or the adapter, of ``policy``."""
        self.trainers[policy].save_model(folder)

    def offload_states(self) -> None:
        """Leave a GPU that is shared with a rollout engine, until ``reload_states``. A base and its
        adapters stay: their states are comparatively small."""
        for trainer in self.trainers.values() if self._base is None else ():
            trainer.offload_states()
        self.release_cache()

    def reload_states(self) -> None:
        """Undo ``offload_states``."""
        for trainer in self.trainers.values() if self._base is None else ():
            trainer.reload_states()

    def release_cache(self) -> None:
        """Release the GPU memory that PyTorch's allocator caches."""
        torch.cuda.empty_cache()

    def _active(self, policy: int) -> PolicyTrainer:
        """Activate the adapter of ``policy``, if any, and return its trainer."""
        if self._base is not None:
            self._base.activate(policy)
        return self.trainers[policy]
