"""One DeepSpeed rank of one policy: loading, weights, checkpoints, memory."""

import math
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path

import deepspeed
import torch
from torch import distributed

from comas.config.schema import Config
from comas.engines.policy.adapters import SharedBase
from comas.engines.policy.deepspeed_options import deepspeed_config, join_group
from comas.engines.policy.model import ResponseModel, load_response_model
from comas.engines.policy.multiplying import multiply_by_onednn
from comas.engines.policy.optimizers import (
    configured_rates,
    create_optimizer,
    create_schedule,
    forget_host_buffers,
)
from comas.engines.policy.weights import NamedTensor, save_model, weights_as_saved
from comas.policy_optimization.batching import MicroBatch
from comas.types import Device
from comas.utils.model_folder import folder_of

CHECKPOINT_TAG = "policy"
Compute = Callable[[MicroBatch], tuple[torch.Tensor, torch.Tensor]]
"""Computes log-probs and entropies of a micro batch, as ``ResponseModel`` does."""


class PolicyEngine:
    """One rank of one policy's DeepSpeed group; its methods are collective over the ranks.

    Args:
        model_path: the base model, a folder or a hub name.
        config: the run's, with the policy's own learning rate.
        device: on "cuda" the rank owns the only GPU that it sees.
        rendezvous: see ``join_group``.
        num_optimizer_steps: expected of the whole run, for a decaying learning rate.
        shared: the base model, and the KL penalty's reference, if adapter ``index`` is trained.

    Raises ValueError when the model cannot be used.
    """

    def __init__(
        self,
        model_path: str,
        config: Config,
        *,
        device: Device,
        rank: int,
        rendezvous: Path,
        num_optimizer_steps: int | None = None,
        shared: SharedBase | None = None,
        index: int = 0,
    ) -> None:
        policy, optimization = config.policy, config.optimization
        self._name = model_path
        self._config = config
        self._shared, self._index = shared, index
        self._estimator_memory: dict[Hashable, float] = {}
        self._rank = rank
        self._num_ranks = policy.ranks_per_policy
        self._device = join_group(
            device,
            rank=rank,
            world_size=self._num_ranks,
            rendezvous=rendezvous,
            timeout_s=config.cluster.call_timeout_s,
        )
        self._base = folder_of(model_path)
        self._resident: list[ResponseModel] = []  # models on the GPU besides DeepSpeed's
        model = self._load_model()
        self._language_model = model.language_model
        if device == "cpu" and not model.pads:
            multiply_by_onednn(self._language_model)
        trained = {
            name: weight
            for name, weight in self._language_model.named_parameters()
            if weight.requires_grad
        }
        self._engine, *_ = deepspeed.initialize(
            model=model,
            config=deepspeed_config(
                policy,
                optimization,
                device=device,
                num_trained=sum(weight.numel() for weight in trained.values()),
            ),
            model_parameters=list(trained.values()),
            optimizer=lambda _: create_optimizer(trained, policy, optimization, device=device),
            lr_scheduler=lambda optimizer: create_schedule(
                optimizer, optimization, num_steps=num_optimizer_steps
            ),
        )
        if self._num_ranks == 1 and self._engine.zero_optimization_stage() == 0:
            # A single rank would copy all gradients into one buffer, and back.
            self._engine.enable_backward_allreduce = False
        self._engine.train()

    def named_weights(self) -> Iterator[NamedTensor]:
        """Yield every weight whole, under its Hugging Face name; iterate on all ranks."""
        return weights_as_saved(self._language_model)

    def save_checkpoint(self, folder: Path) -> None:
        """Write weights, optimiser, scheduler and the estimator's memory, each rank its shard."""
        self._engine.save_checkpoint(
            str(folder),
            tag=CHECKPOINT_TAG,
            client_state={"estimator_memory": self._estimator_memory},
            exclude_frozen_parameters=self._shared is not None,
        )

    def load_checkpoint(self, folder: Path) -> None:
        """Restore what ``save_checkpoint`` wrote, but for learning rate and weight decay. Raises
        ValueError when ``folder`` has no checkpoint, or one that does not fit."""
        if not (folder / CHECKPOINT_TAG).is_dir():
            raise ValueError(f"resume: no policy checkpoint in {folder}; resume another run")
        try:
            with configured_rates(self._engine):
                _, kept = self._engine.load_checkpoint(
                    str(folder), tag=CHECKPOINT_TAG, load_module_strict=self._shared is None
                )
        except (RuntimeError, AttributeError, FileNotFoundError) as error:
            # The first would count as a lost engine, and be retried.
            raise ValueError(
                f"resume: the checkpoint in {folder} is of another model, or divided otherwise. "
                "Leave society.models, policy.lora and policy.zero_stage as they were, or start a "
                f"new run ({error})"
            ) from error
        forget_host_buffers(self._engine.basic_optimizer)
        self._estimator_memory = kept["estimator_memory"]

    def save_model(self, folder: Path) -> None:
        """Write the model, or the adapter in PEFT's format, with tokenizer and chat template."""
        if self._shared is None:
            save_model(self._language_model, folder, base=self._base, rank=self._rank)
        elif self._rank == 0:
            self._shared.save(self._index, folder)
        distributed.barrier()

    def offload_states(self) -> None:
        """Move weights, gradients and optimiser to host memory, until ``reload_states``."""
        self._engine.offload_states(pin_memory=self._device.type == "cuda")
        for model in self._resident:
            model.to("cpu")

    def reload_states(self) -> None:
        """Undo ``offload_states``."""
        self._engine.reload_states()
        for model in self._resident:
            model.to(self._device)

    def _apply_gradient(self) -> float | None:
        """Step the optimiser; return the gradient's global norm before clipping. If it is not
        finite, change nothing and return None."""
        engine = self._engine
        parameters = list(engine.module.parameters())
        is_float32 = all(parameter.dtype == torch.float32 for parameter in parameters)
        if engine.zero_optimization_stage() == 0 and is_float32:
            # Without ZeRO in float32, DeepSpeed keeps no norm and steps on any gradient. Here the
            # gradients are already averaged over the ranks.
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            norm = torch.nn.utils.get_total_norm(gradients).item()
            if not math.isfinite(norm):
                engine.zero_grad()
                return None
            engine.step()
            return norm
        engine.step()
        return float(engine.get_global_grad_norm()) if engine.was_step_applied() else None

    def _check_finite(self, *, step: int) -> None:
        """Raise FloatingPointError unless every weight is finite."""
        parameters = self._language_model.parameters()
        shards = [getattr(parameter, "ds_tensor", parameter) for parameter in parameters]
        is_finite = all(bool(shard.isfinite().all()) for shard in shards)
        num_bad_ranks = torch.tensor(float(not is_finite), device=shards[0].device)
        distributed.all_reduce(num_bad_ranks)
        if num_bad_ranks.item() > 0:
            raise FloatingPointError(
                f"step {step}: the weights of policy {self._name} are not finite; resume from "
                "the last checkpoint with a lower optimization.learning_rate, or its own in "
                "society.learning_rates"
            )

    def _recompute_activations_of(self, batch: MicroBatch) -> None:
        """Switch gradient checkpointing on or off: as configured, else on for a single sample of
        more than ``policy.micro_batch_tokens`` (under ZeRO-3 on all ranks if any rank has one, as
        they gather each layer together)."""
        wanted = self._config.policy.gradient_checkpointing
        if wanted is None:
            num_tokens = batch.input_ids.numel()
            if self._engine.module.pads:
                num_tokens = (len(batch.boundaries) - 1) * batch.longest  # as if all were longest
            is_long = torch.tensor(int(num_tokens > self._config.policy.micro_batch_tokens))
            if self._engine.zero_optimization_stage() == 3:
                is_long = is_long.to(self._device)
                distributed.all_reduce(is_long, op=distributed.ReduceOp.MAX)
            wanted = bool(is_long)
        model = self._language_model
        if wanted and not model.is_gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        elif not wanted and model.is_gradient_checkpointing:
            model.gradient_checkpointing_disable()

    def _load_model(self) -> ResponseModel:
        if self._shared is not None:
            self._shared.activate(self._index)
            return self._shared.model
        config = self._config
        max_model_len = config.rollout.max_model_len
        return load_response_model(self._base, config.policy, max_model_len=max_model_len)

    def _load_reference(self) -> Compute:
        """Return the base model, frozen and whole on every rank, also after a resume."""
        if self._shared is not None:
            return self._shared.without_adapter
        reference = self._load_model().requires_grad_(False).eval().to(self._device)
        self._resident.append(reference)
        return reference
