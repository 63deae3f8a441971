"""One rank of a family: the policies that one DeepSpeed group trains."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from comas.config.schema import Optimization, Policy
from comas.engines.policy.adapter_trainer import AdapterTrainer
from comas.engines.policy.adapters import SharedBase
from comas.engines.policy.engine import load_policy_model
from comas.engines.policy.trainer import PolicyTrainer
from comas.engines.policy.weights import check_loaded_weights
from comas.types import TrainingSample, UpdateStats
from comas.utils.model_folder import folder_of


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
        ValueError: the model cannot be used, or was not loaded as it is stored.
    """

    def __init__(
        self,
        model_path: str,
        *,
        policy: Policy,
        optimizations: Mapping[int, Optimization],
        num_optimizer_steps: Mapping[int, int | None],
        temperature: float,
        seed: int,
        **others: Any,
    ) -> None:
        others |= {"policy": policy, "temperature": temperature, "seed": seed}
        base = None
        if policy.lora.rank is not None:
            base = _load_base(
                model_path, policy, policies=list(optimizations), temperature=temperature, seed=seed
            )
        self.trainers: dict[int, PolicyTrainer] = {}
        """Policy -> its trainer; frozen policies have none."""
        for index, optimization in optimizations.items():
            options: dict[str, Any] = others | {
                "optimization": optimization,
                "num_optimizer_steps": num_optimizer_steps[index],
            }
            if base is None:
                self.trainers[index] = PolicyTrainer(model_path, **options)
            else:
                self.trainers[index] = AdapterTrainer(model_path, base=base, index=index, **options)

    def update(
        self, buffers: Mapping[int, Sequence[TrainingSample]], *, step: int
    ) -> dict[int, UpdateStats]:
        """Update the policies of ``buffers``, each on its own: policy -> result."""
        return {
            policy: self.trainers[policy].update(samples, step=step)
            for policy, samples in sorted(buffers.items())
        }

    def adapter(self, policy: int) -> dict[str, torch.Tensor]:
        """The weights of the adapter of ``policy``, under PEFT's names, on the CPU."""
        weights = self.trainers[policy].named_weights()
        # Trap: under ZeRO they are parts of one tensor, all of which would travel with each.
        return {name: weight.to("cpu", copy=True) for name, weight in weights}

    def copy_checkpoint(self, folder: Path) -> None:
        """Copy the states of every policy for ``write_checkpoint``: ``folder/policy_<i>``."""
        for policy, trainer in self.trainers.items():
            trainer.copy_checkpoint(folder / f"policy_{policy}")

    def write_checkpoint(self) -> None:
        """Write what was copied, in any thread; not collective. Raises OSError when it cannot."""
        for trainer in self.trainers.values():
            trainer.write_checkpoint()

    def load_checkpoint(self, folder: Path) -> None:
        """Continue where ``copy_checkpoint`` was called. Raises ValueError when one is missing."""
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
        for trainer in self.trainers.values():
            trainer.release_cache()

    def reserved_peak(self) -> int:
        """The most bytes of the GPU that PyTorch held in this process; 0 on a CPU."""
        return torch.cuda.max_memory_reserved()


def _load_base(
    model_path: str, policy: Policy, *, policies: Sequence[int], temperature: float, seed: int
) -> SharedBase:
    folder = folder_of(model_path)
    model = load_policy_model(folder, policy, temperature=temperature)
    check_loaded_weights(model.language_model, folder, zero_stage=0)
    return SharedBase(
        model, name=model_path, folder=folder, lora=policy.lora, policies=policies, seed=seed
    )
