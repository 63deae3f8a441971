"""Policies as LoRA adapters of one base model, which is in memory once."""

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import torch
from peft import LoraConfig, PeftModel
from safetensors.torch import save_file

from comas.config.schema import Config
from comas.engines.policy.model import load_response_model
from comas.policy_optimization.batching import MicroBatch
from comas.utils.model_folder import adapted_layers, copy_tokenizer, folder_of


class SharedBase:
    """A frozen base model with an adapter for each of ``policies``; one is active at a time.

    A new adapter changes nothing: A is random (by seed and policy), and B is 0.

    Raises ValueError when the model cannot be used, or lacks the layers to adapt.
    """

    def __init__(self, model_path: str, config: Config, *, policies: Sequence[int]) -> None:
        self._folder = folder_of(model_path)
        lora, max_model_len = config.policy.lora, config.rollout.max_model_len
        self.model = load_response_model(self._folder, config.policy, max_model_len=max_model_len)
        self.model.requires_grad_(False)
        self.model.register_state_dict_post_hook(lambda model, state, *_: self._keep_active(state))
        assert lora.rank is not None
        self._config = LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            target_modules=adapted_layers(self._folder, lora.target_modules),
            task_type="CAUSAL_LM",
            base_model_name_or_path=(
                os.path.abspath(model_path) if Path(model_path).is_dir() else model_path
            ),
        )
        plain = self.model.language_model
        for index in policies:
            # The same on every rank; the global random state is restored.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(Random(f"{config.seed}/adapter {index}").getrandbits(63))
                if index == policies[0]:
                    self._peft = PeftModel(
                        plain, self._config, _name(index), autocast_adapter_dtype=False
                    )
                else:
                    self._peft.add_adapter(_name(index), self._config, autocast_adapter_dtype=False)

    def activate(self, policy: int) -> None:
        """Make the adapter of ``policy`` the one that computes and is trained."""
        self._peft.set_adapter(_name(policy))

    def without_adapter(self, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute as ``ResponseModel`` does, with the base model alone."""
        self._peft.base_model.disable_adapter_layers()
        try:
            return self.model(batch)
        finally:
            self._peft.base_model.enable_adapter_layers()

    def _keep_active(self, state: dict[str, torch.Tensor]) -> None:
        # DeepSpeed's exclusion of frozen parameters would keep one name of each tied weight.
        ending = f".{self._peft.active_adapter}.weight"
        for name in [name for name in state if not name.endswith(ending)]:
            del state[name]

    def weights(self, policy: int) -> dict[str, torch.Tensor]:
        """Return the adapter of ``policy`` on the CPU, under PEFT's names:
        ``base_model.model.model.layers.0.mlp.up_proj.lora_A.weight``."""
        # Trap: PEFT's own function looks for a part of the name, so "1" would match "layers.1".
        ending = f".{_name(policy)}.weight"
        return {
            # Trap: under ZeRO they are views of one tensor, which pickling would copy each time.
            f"base_model.model.{name.removesuffix(ending)}.weight": weight.detach().to(
                "cpu", copy=True
            )
            for name, weight in self.model.language_model.named_parameters()
            if name.endswith(ending)
        }

    def save(self, policy: int, folder: Path) -> None:
        """Write the adapter of ``policy`` in PEFT's format, with the base's tokenizer files."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "adapter_model.safetensors"  # the name that PEFT and vLLM expect
        save_file(self.weights(policy), file, metadata={"format": "pt"})
        self._config.save_pretrained(str(folder))
        copy_tokenizer(self._folder, folder)


def _name(policy: int) -> str:
    """PEFT's name for the adapter of ``policy``."""
    return f"policy_{policy}"
