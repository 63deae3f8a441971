"""One rank of one policy's training: DeepSpeed around the pure parts."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import deepspeed
import torch
from torch import distributed

from comas.config.schema import Optimization, Policy
from comas.engines.policy.checkpoint_engine import CopyingCheckpointEngine
from comas.engines.policy.deepspeed_options import (
    Device,
    create_optimizer,
    create_schedule,
    deepspeed_config,
    forget_host_buffers,
    join_group,
)
from comas.engines.policy.gradient import apply_gradient, weights_are_finite
from comas.engines.policy.model import ResponseModel, load_response_model
from comas.engines.policy.progress import Progress, no_update
from comas.engines.policy.weights import (
    Shard,
    WeightMetadata,
    check_loaded_weights,
    check_shapes,
    named_weights,
    note_shapes,
    save_model,
    weight_metadata,
    weight_shards,
)
from comas.policy_optimization import ADVANTAGE_ESTIMATORS
from comas.policy_optimization.batching import (
    MicroBatch,
    assemble,
    padded_rollout_logprobs,
    response_mask,
)
from comas.policy_optimization.length_penalty import penalise_length
from comas.policy_optimization.losses import StepTotals
from comas.policy_optimization.objective import needs_pass_beforehand, policy_loss
from comas.policy_optimization.preference_pairs import preference_pairs
from comas.policy_optimization.shares import Shares
from comas.policy_optimization.targets import Targets, compute_advantages, k1_to_reference
from comas.types import TrainingSample, UpdateStats
from comas.utils.model_folder import folder_of

CHECKPOINT_TAG = "policy"
Compute = Callable[[MicroBatch], tuple[torch.Tensor, torch.Tensor]]
"""What ``ResponseModel`` computes."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_policy_model(folder: Path, policy: Policy, *, temperature: float) -> ResponseModel:
    """The model in ``folder`` as ``policy`` wants it."""
    return load_response_model(
        folder,
        dtype=DTYPES[policy.dtype],
        attn_implementation=policy.attn_implementation,
        temperature=temperature,
    )


class PolicyTrainer:
    """One rank of one policy's DeepSpeed group; its methods are collective over the ranks
    unless they say otherwise.

    Args:
        model_path: the base model, a folder or a hub name.
        temperature: the rollout's; the log-probs of training are those of the same
            distribution.
        max_response_tokens: the rollout's, for what depends on how long a response may be.
        device: on "cuda" the rank owns the one GPU it can see.
        rendezvous: path that all ranks of the group can open; empty, or not there yet.
        seed: with the step number it decides how a buffer is shuffled, so a resumed run
            needs no random state.
        num_optimizer_steps: expected of the whole run; ``optimization.lr_schedule`` says whether
            it has to be known.

    Raises:
        ValueError: the model cannot be used, or was not loaded as it is stored.
    """

    _is_whole = True
    """Whether every weight of the model is this policy's."""

    def __init__(
        self,
        model_path: str,
        *,
        policy: Policy,
        optimization: Optimization,
        temperature: float,
        max_response_tokens: int,
        device: Device,
        rank: int,
        world_size: int,
        rendezvous: Path,
        seed: int,
        num_optimizer_steps: int | None = None,
    ) -> None:
        self._name = model_path
        self._policy = policy
        self._optimization = optimization
        self._temperature = temperature
        self._max_response_tokens = max_response_tokens
        self._compares_pairs = optimization.loss == "dpo"
        self._estimator = ADVANTAGE_ESTIMATORS[optimization.estimator]
        self._estimator_memory: dict[Hashable, float] = {}
        self._rank = rank
        self._world_size = world_size
        self._shares = Shares(policy, optimization, seed=seed, rank=rank, num_ranks=world_size)
        self._device = join_group(device, rank=rank, world_size=world_size, rendezvous=rendezvous)
        self._base = folder_of(model_path)
        self._start_engine(device, num_optimizer_steps=num_optimizer_steps)
        self._resident: list[ResponseModel] = []  # on the GPU, beside what DeepSpeed holds
        self._reference = self._load_reference() if optimization.kl_coef > 0 else None

    def update(self, samples: Sequence[TrainingSample], *, step: int) -> UpdateStats:
        """Update the policy on its whole buffer; every rank is given all of it.

        Each rank puts its share through the model; advantages are computed by every rank
        over the whole buffer. An empty buffer, or one without a pair to compare where the loss
        is "dpo", changes nothing.

        Raises:
            FloatingPointError: the weights are not finite.
        """
        samples = penalise_length(
            samples,
            buffer_tokens=self._optimization.overlong_buffer_tokens,
            max_response_tokens=self._max_response_tokens,
        )
        if self._compares_pairs:
            samples = list(chain(*preference_pairs(samples)))
        if not samples:
            return no_update(self._engine.get_lr()[0])
        steps = self._shares.optimizer_steps(len(samples), step=step)
        targets = self._targets(samples, num_steps=len(steps))
        progress = Progress.start(targets.mask)
        for indices in steps:
            self._optimizer_step(samples, indices, targets, progress)
        if not weights_are_finite(self._language_model):
            raise FloatingPointError(
                f"step {step}: the weights of policy {self._name} are not finite; resume from "
                "the last checkpoint with a lower optimization.learning_rate, or its own in "
                "society.learning_rates"
            )
        return progress.statistics(targets, first_step=steps[0])

    def response_logprobs(self, samples: Sequence[TrainingSample]) -> list[torch.Tensor]:
        """The policy's log-probs of each response's tokens, as 1-D tensors on the CPU."""
        logprobs = self._logprobs(self._engine, samples).cpu()
        return [
            row[: len(sample.response_token_ids)]
            for row, sample in zip(logprobs, samples, strict=True)
        ]

    def named_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every parameter whole under its Hugging Face name; iterate on all ranks."""
        return named_weights(self._language_model, zero_stage=self._zero_stage)

    def weight_shards(self) -> Iterator[list[Shard]]:
        """Yield what this rank holds of every parameter, chunk by chunk; not collective."""
        return weight_shards(self._language_model, zero_stage=self._zero_stage, rank=self._rank)

    @property
    def is_sharded(self) -> bool:
        """Whether each rank holds a part of every weight, and none a whole one."""
        return self._zero_stage == 3 and self._world_size > 1

    def weight_metadata(self) -> list[WeightMetadata]:
        """Name, dtype and shape of what ``named_weights`` yields, in its order."""
        return weight_metadata(self._language_model)

    def copy_checkpoint(self, folder: Path) -> None:
        """Copy weights, optimiser, scheduler and what the estimator remembers, each rank its
        shard, for ``write_checkpoint`` to write into ``folder``."""
        if self._rank == 0:
            note_shapes(folder, self.weight_metadata())
        memory = {"estimator_memory": self._estimator_memory}
        self._engine.save_checkpoint(
            str(folder),
            tag=CHECKPOINT_TAG,
            client_state=memory,
            exclude_frozen_parameters=not self._is_whole,
        )

    def write_checkpoint(self) -> None:
        """Write what was copied, in any thread; not collective. Raises OSError when it cannot."""
        self._checkpoints.write()

    def load_checkpoint(self, folder: Path) -> None:
        """Continue exactly where the policy was when ``copy_checkpoint`` was called.

        Raises:
            ValueError: there is no checkpoint in ``folder``, or it is of another model.
        """
        if not (folder / CHECKPOINT_TAG).is_dir():
            raise ValueError(f"resume: no policy checkpoint in {folder}; resume another run")
        check_shapes(folder, self.weight_metadata())
        _, kept = self._engine.load_checkpoint(
            str(folder), tag=CHECKPOINT_TAG, load_module_strict=self._is_whole
        )
        forget_host_buffers(self._engine.basic_optimizer)
        # A checkpoint of an older version has none: no estimator kept anything.
        self._estimator_memory = kept.get("estimator_memory", {})

    def save_model(self, folder: Path) -> None:
        """Write the model in Hugging Face format, with tokenizer and chat template."""
        save_model(
            self._language_model,
            folder,
            base=self._base,
            zero_stage=self._zero_stage,
            rank=self._rank,
        )
        distributed.barrier()

    def offload_states(self) -> None:
        """Move weights, gradients and optimiser to host memory, until ``reload_states``.

        Raises:
            ValueError: without ZeRO, nothing can be moved.
        """
        if self._zero_stage == 0:
            raise ValueError(
                "policy.zero_stage = 0 cannot leave a GPU shared with the rollout engine; "
                "set it to 1, 2 or 3, or cluster.placement to disaggregated"
            )
        self._engine.offload_states(pin_memory=self._device.type == "cuda")
        for model in self._resident:
            model.to("cpu")
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def release_cache(self) -> None:
        """Give the GPU back what the allocator holds unused, for the engine that shares it."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def reload_states(self) -> None:
        """Undo ``offload_states``."""
        self._engine.reload_states()
        for model in self._resident:
            model.to(self._device)

    def close(self) -> None:
        """Let go of the engine; the process stays in its group."""
        self._engine.destroy()

    def _start_engine(self, device: Device, *, num_optimizer_steps: int | None) -> None:
        model = self._load_model()
        self._language_model = model.language_model
        if self._policy.gradient_checkpointing:
            self._checkpoint_activations(True)
        policy, optimization = self._policy, self._optimization
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        self._engine, *_ = deepspeed.initialize(
            model=model,
            config=deepspeed_config(
                policy,
                optimization,
                device=device,
                num_trained=sum(weight.numel() for weight in trained),
            ),
            model_parameters=trained,
            optimizer=lambda parameters: create_optimizer(
                parameters, policy, optimization, device=device
            ),
            lr_scheduler=lambda optimizer: create_schedule(
                optimizer, optimization, num_steps=num_optimizer_steps
            ),
        )
        # DeepSpeed's configuration can name its own kinds only.
        self._engine.checkpoint_engine = self._checkpoints = CopyingCheckpointEngine()
        self._engine.train()
        self._zero_stage = self._engine.zero_optimization_stage()
        self._check_loaded()

    def _check_loaded(self) -> None:
        check_loaded_weights(self._language_model, self._base, zero_stage=self._zero_stage)

    def _checkpoint_activations(self, wanted: bool) -> None:
        """Have the backward pass recompute what a layer computes, or keep it."""
        model = self._language_model
        if wanted and not model.is_gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        elif not wanted and model.is_gradient_checkpointing:
            model.gradient_checkpointing_disable()

    def _is_over_budget(self, batch: MicroBatch) -> bool:
        """Whether this is a single sample of more than ``policy.micro_batch_tokens``."""
        budget = self._policy.micro_batch_tokens
        assert budget is not None, "the configuration's checks refuse this"
        return batch.input_ids.numel() > budget

    def _load_model(self) -> ResponseModel:
        return load_policy_model(self._base, self._policy, temperature=self._temperature)

    def _load_reference(self) -> Compute:
        """The base model, frozen and whole on every rank, also after a resume."""
        reference = self._load_model().requires_grad_(False).eval().to(self._device)
        self._resident.append(reference)
        return reference

    @torch.no_grad()
    def _logprobs(self, model: Compute, samples: Sequence[TrainingSample]) -> torch.Tensor:
        """Log-probs [N, T] of all responses, 0 where padded, complete on every rank."""
        logprobs = torch.zeros(response_mask(samples).shape, device=self._device)
        for indices in self._shares.micro_batches(samples, range(len(samples))):
            batch = assemble([samples[i] for i in indices], device=self._device)
            rows, _ = model(batch)
            logprobs[indices, : rows.shape[1]] = rows[: len(indices)]
        distributed.all_reduce(logprobs)
        return logprobs

    def _targets(self, samples: Sequence[TrainingSample], *, num_steps: int) -> Targets:
        """Log-probs before the update, and the advantages of the whole buffer."""
        optimization = self._optimization
        mask = response_mask(samples).to(self._device)
        policy = reference = None
        if self._reference is not None:
            reference = self._logprobs(self._reference, samples)
        if needs_pass_beforehand(optimization, self._estimator, num_optimizer_steps=num_steps):
            policy = self._logprobs(self._engine, samples)
        advantages = None
        if not self._compares_pairs:
            advantages = compute_advantages(
                samples,
                mask=mask,
                k1=k1_to_reference(policy, reference, mask),
                estimator=self._estimator,
                group_by=optimization.group_by,
                discount=optimization.discount,
                kl_coef=optimization.kl_coef,
                memory=self._estimator_memory,
            )
        rollout = padded_rollout_logprobs(samples).to(self._device)
        old = rollout if optimization.old_logprobs == "rollout" else policy
        return Targets(mask, advantages, old, policy, reference, rollout)

    def _optimizer_step(
        self,
        samples: Sequence[TrainingSample],
        indices: Sequence[int],
        targets: Targets,
        progress: Progress,
    ) -> None:
        """One optimiser step on the samples ``indices``; adds to ``progress``."""
        totals = StepTotals(
            num_tokens=sum(len(samples[i].response_token_ids) for i in indices),
            num_samples=len(indices),
            max_response_tokens=self._max_response_tokens,
            num_ranks=self._world_size,
        )
        progress.learning_rate = self._engine.get_lr()[0]
        micro_batches = self._shares.micro_batches(samples, indices)
        for position, micro in enumerate(micro_batches):
            self._engine.set_gradient_accumulation_boundary(position == len(micro_batches) - 1)
            batch = assemble([samples[i] for i in micro], device=self._device)
            if self._policy.gradient_checkpointing is None:
                self._checkpoint_activations(self._is_over_budget(batch))
            logprobs, entropies = self._engine(batch)
            rows = targets.rows(micro, logprobs.shape[1])
            surrogate = policy_loss(
                logprobs,
                rows=rows,
                totals=totals,
                optimization=self._optimization,
                estimator=self._estimator,
            )
            self._engine.backward(surrogate.loss)
            progress.add(surrogate, entropies)
            if progress.num_steps == 0:
                progress.logprobs[micro, : logprobs.shape[1]] = logprobs.detach()[: len(micro)]
        progress.num_tokens += totals.num_tokens
        progress.num_steps += 1
        norm = apply_gradient(self._engine)
        if norm is None:
            progress.num_skipped_steps += 1
        else:
            progress.gradient_norm += norm
