"""One rank of a family: the policies that one DeepSpeed group trains."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from comas.config.schema import Optimization, Policy
from comas.engines.policy.adapters import AdapterTrainer, SharedBase
from comas.engines.policy.trainer import PolicyTrainer
from comas.types import TrainingSample, UpdateStats
from comas.utils.processes import return_free_memory


class FamilyTrainer:
    """Trains the policies of a family; methods are collective over its ranks unless they say
    otherwise.

    A family is one policy with a model of its own, or several that are LoRA adapters of the same
    model, which is then held once. They are trained one after another.

    Args:
        optimizations: trained policy -> its settings.
        num_optimizer_steps: policy -> its number, see ``PolicyEngine``.
        others: arguments of ``PolicyTrainer`` that all policies share.

    Raises:
        ValueError: the model cannot be used.
    """

    def __init__(
        self,
        model_path: str,
        *,
        policy: Policy,
        optimizations: Mapping[int, Optimization],
        num_optimizer_steps: Mapping[int, int | None],
        seed: int,
        **others: Any,
    ) -> None:
        others |= {"policy": policy, "seed": seed}
        if policy.lora.rank is not None:
            self._base = SharedBase(model_path, policy, policies=list(optimizations), seed=seed)
        self.trainers: dict[int, PolicyTrainer] = {}
        """Policy -> its trainer; frozen policies have none."""
        for index, optimization in optimizations.items():
            options: dict[str, Any] = others | {
                "optimization": optimization,
                "num_optimizer_steps": num_optimizer_steps[index],
            }
            self.trainers[index] = (
                PolicyTrainer(model_path, **options)
                if policy.lora.rank is None
                else AdapterTrainer(model_path, base=self._base, index=index, **options)
            )

    def update(
        self, buffers: Mapping[int, Sequence[TrainingSample]], *, step: int
    ) -> dict[int, UpdateStats]:
        """Update the policies of ``buffers``, each on its own: policy -> result."""
        stats = {
            policy: self.trainers[policy].update(samples, step=step)
            for policy, samples in sorted(buffers.items())
        }
        return_free_memory()
        return stats

    def response_logprobs(
        self, buffers: Mapping[int, Sequence[TrainingSample]]
    ) -> dict[int, list[list[float]]]:
        """The log-probs of each response's tokens, by policy of this family in ``buffers``."""
        return {
            policy: trainer.response_logprobs(buffers[policy])
            for policy, trainer in self.trainers.items()
            if policy in buffers
        }

    def adapter(self, policy: int) -> dict[str, torch.Tensor]:
        """Return the weights of the adapter of ``policy``, under PEFT's names, on the CPU."""
        return self._base.weights(policy)

    def save_checkpoint(self, folder: Path) -> None:
        """Write the states of every policy: ``folder/policy_<i>``."""
        for policy, trainer in self.trainers.items():
            trainer.save_checkpoint(folder / f"policy_{policy}")

    def load_checkpoint(self, folder: Path) -> None:
        """Continue where ``save_checkpoint`` was called. Raises ValueError when one is missing."""
        for policy, trainer in self.trainers.items():
            trainer.load_checkpoint(folder / f"policy_{policy}")

    def save_model(self, policy: int, folder: Path) -> None:
        """Write the model of ``policy``, or its adapter."""
        self.trainers[policy].save_model(folder)

    def offload_states(self) -> None:
        """Leave a GPU that is shared with a rollout engine, until ``reload_states``."""
        for trainer in self.trainers.values():
            trainer.offload_states()

    def reload_states(self) -> None:
        """Undo ``offload_states``."""
        for trainer in self.trainers.values():
            trainer.reload_states()

    def release_cache(self) -> None:
        """Give the GPU back what the allocator holds unused."""
        torch.cuda.empty_cache()
