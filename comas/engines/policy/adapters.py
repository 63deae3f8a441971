"""Policies that are LoRA adapters: one base model in memory, and an adapter of it for each."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import torch
from peft import LoraConfig, PeftModel
from safetensors.torch import save_file
from torch import nn

from comas.config.schema import Lora
from comas.engines.policy.model import ResponseModel
from comas.policy_optimization.batching import MicroBatch
from comas.utils.model_description import copy_tokenizer
from comas.utils.model_folder import adapted_layers

WEIGHTS_FILE = "adapter_model.safetensors"
"""The name under which PEFT and vLLM look for an adapter's weights."""


class SharedBase:
    """A base model with an adapter for each of ``policies``, of which one at a time is active.

    A new adapter changes nothing: its A is random, drawn from ``seed`` and its policy, and its B
    is 0. The base's own weights are never trained.

    Args:
        name: the model, a folder or a hub name, as adapters that are saved will name it.
        folder: its files.

    Raises:
        ValueError: the model lacks layers that are to be adapted.
    """

    def __init__(
        self,
        model: ResponseModel,
        *,
        name: str,
        folder: Path,
        lora: Lora,
        policies: Sequence[int],
        seed: int,
    ) -> None:
        self.model = model.requires_grad_(False)
        model.register_state_dict_post_hook(lambda model, state, *_: self._keep_active(state))
        self.folder = folder
        first, *others = policies
        assert lora.rank is not None
        self._config = LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            target_modules=adapted_layers(folder, lora.target_modules),
            task_type="CAUSAL_LM",
            base_model_name_or_path=os.path.abspath(name) if Path(name).is_dir() else name,
        )
        with _random_numbers(seed, first):
            self._peft = PeftModel(
                model.language_model, self._config, _name(first), autocast_adapter_dtype=False
            )
        for policy in others:
            with _random_numbers(seed, policy):
                self._peft.add_adapter(_name(policy), self._config, autocast_adapter_dtype=False)

    def activate(self, policy: int) -> None:
        """Compute with, and train, the adapter of ``policy`` from now on."""
        self._peft.set_adapter(_name(policy))

    def without_adapter(self, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probs and entropies of the base model itself, as from ``ResponseModel``."""
        self._peft.base_model.disable_adapter_layers()
        try:
            return self.model(batch)
        finally:
            self._peft.base_model.enable_adapter_layers()

    def _keep_active(self, state: dict[str, torch.Tensor]) -> None:
        # DeepSpeed would leave out what is frozen but for tied weights: one name of two stays.
        ending = f".{self._peft.active_adapter}.weight"
        for name in [name for name in state if not name.endswith(ending)]:
            del state[name]

    def weights(self, policy: int) -> Iterator[tuple[str, nn.Parameter]]:
        """The adapter of ``policy``, under PEFT's names:
        ``base_model.model.model.layers.0.mlp.up_proj.lora_A.weight``."""
        ending = f".{_name(policy)}.weight"
        for name, weight in self.model.language_model.named_parameters():
            if name.endswith(ending):
                yield f"base_model.model.{name.removesuffix(ending)}.weight", weight

    def save(self, policy: int, folder: Path) -> None:
        """Write the adapter of ``policy`` in PEFT's format, with the base's tokenizer files."""
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: weight.detach().cpu() for name, weight in self.weights(policy)}
        save_file(weights, folder / WEIGHTS_FILE, metadata={"format": "pt"})
        self._config.save_pretrained(str(folder))
        copy_tokenizer(self.folder, folder)


def _name(policy: int) -> str:
    """PEFT's name for the adapter of ``policy``."""
    return f"policy_{policy}"


@contextmanager
def _random_numbers(seed: int, policy: int) -> Iterator[None]:
    """Random numbers for the first weights of the adapter of ``policy``, equal on every rank; the
    generators of all else stay as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(Random(f"{seed}/adapter {policy}").getrandbits(63))
        yield
