"""One policy's update on one rank, from the buffer to new weights."""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from random import Random
from typing import Any

import torch
from torch import distributed

from comas.config.schema import Config, Dpo, for_agent
from comas.engines.policy.engine import Compute, PolicyEngine
from comas.engines.policy.sums import UpdateSums
from comas.policy_optimization.advantages import compute_advantages
from comas.policy_optimization.balancing import divide_samples
from comas.policy_optimization.batching import (
    MicroBatch,
    StepTotals,
    assemble,
    response_mask,
    rollout_logprobs,
    split_into_steps,
)
from comas.policy_optimization.losses import (
    Targets,
    idle_samples,
    log_ratios,
    needs_pass_beforehand,
    policy_loss,
)
from comas.policy_optimization.preferences import preference_pairs
from comas.policy_optimization.update_stats import UpdateStats
from comas.types import TrainingSample


class PolicyTrainer(PolicyEngine):
    """One rank of one policy's training; methods are collective over the ranks. The arguments are
    those of ``PolicyEngine``."""

    def __init__(self, model_path: str, config: Config, **others: Any) -> None:
        super().__init__(model_path, config, **others)
        self._algorithm = config.algorithm
        self._unit = 2 if isinstance(config.algorithm, Dpo) else 1  # samples that stay together
        model = self._engine.module
        self._layout = {"share_prompts": model.shares_prompts, "pads": model.pads}
        self._reference = self._load_reference() if config.algorithm.uses_reference else None

    def update(self, samples: Sequence[TrainingSample], *, step: int) -> UpdateStats:
        """Update the policy on its whole buffer, which every rank receives.

        Every rank computes all advantages (eq. 9 and 10); in each optimiser step (eq. 11), a rank
        computes its share of the samples. An empty buffer, or under dpo one without a pair, changes
        nothing. Raises FloatingPointError when the weights are not finite.
        """
        if isinstance(self._algorithm, Dpo):
            samples = list(chain(*preference_pairs(samples)))
        if not samples:
            return UpdateStats(learning_rate=self._engine.get_lr()[0])
        steps = self._optimizer_steps(len(samples), step=step)
        targets = self._targets(samples, num_steps=len(steps))
        sums = UpdateSums(torch.zeros_like(targets.rollout_logprobs))
        for indices in steps:
            self._optimizer_step(samples, indices, targets, sums)
        self._check_finite(step=step)
        return sums.statistics(samples, targets, first_step=steps[0])

    def _optimizer_steps(self, num_samples: int, *, step: int) -> list[list[int]]:
        """Return the sample indices of every optimiser step, the same on every rank, and after a
        resume: shuffles need no random state."""
        optimization, seed = self._config.optimization, self._config.seed
        return [
            indices
            for epoch in range(optimization.epochs_per_buffer)
            for indices in split_into_steps(
                num_samples,
                train_batch_size=optimization.train_batch_size,
                rng=Random(f"{seed}/{step}/{epoch}"),
                unit=self._unit,
            )
        ]

    def _targets(self, samples: Sequence[TrainingSample], *, num_steps: int) -> Targets:
        """Compute log-probs before the update, and the advantages of the whole buffer."""
        algorithm = self._algorithm
        mask = response_mask(samples).to(self._device)
        policy = reference = advantages = None
        if self._reference is not None:
            reference = self._logprobs(self._reference, samples)
        if needs_pass_beforehand(algorithm, num_optimizer_steps=num_steps):
            policy = self._logprobs(self._engine, samples)
        old = policy
        rollout = rollout_logprobs(samples).to(self._device)
        if not isinstance(algorithm, Dpo):
            advantages = compute_advantages(
                samples,
                mask=mask,
                log_ratios=log_ratios(policy, reference, mask),
                algorithm=algorithm,
                memory=self._estimator_memory,
            )
            old = rollout if algorithm.rollout_correction == "ratio" else policy
        return Targets(mask, advantages, old, policy, reference, rollout)

    def _optimizer_step(
        self,
        samples: Sequence[TrainingSample],
        indices: Sequence[int],
        targets: Targets,
        sums: UpdateSums,
    ) -> None:
        """One step of AdamW on the samples ``indices``; adds to ``sums``."""
        totals = StepTotals(
            num_tokens=int(targets.mask[list(indices)].sum()),
            num_samples=len(indices),
            max_response_tokens=self._config.rollout.longest_response,
            num_ranks=self._num_ranks,
        )
        sums.learning_rate = self._engine.get_lr()[0]
        idle = idle_samples(indices, targets=targets, algorithm=self._algorithm)
        forward = partial(self._forward, samples, targets=targets, totals=totals, sums=sums)
        with torch.no_grad():
            for micro in self._micro_batches(samples, idle) if idle else ():
                forward(micro)
        micro_batches = self._micro_batches(samples, [i for i in indices if i not in idle])
        for number, micro in enumerate(micro_batches, start=1):
            self._engine.set_gradient_accumulation_boundary(number == len(micro_batches))
            self._engine.backward(forward(micro))
        sums.num_tokens += totals.num_tokens
        sums.gradient_norms.append(self._apply_gradient())

    def _forward(
        self,
        samples: Sequence[TrainingSample],
        micro: Sequence[int],
        *,
        targets: Targets,
        totals: StepTotals,
        sums: UpdateSums,
    ) -> torch.Tensor:
        """Return the loss of a micro batch; adds to ``sums``."""
        batch = self._assemble([samples[i] for i in micro])
        self._recompute_activations_of(batch)
        logprobs, entropies = self._engine(batch)
        targets = targets.rows(micro, logprobs.shape[1])
        surrogate = policy_loss(logprobs, targets=targets, totals=totals, algorithm=self._algorithm)
        sums.add(surrogate, entropies)
        if not sums.gradient_norms:
            sums.logprobs[micro, : logprobs.shape[1]] = logprobs.detach()[: len(micro)]
        return surrogate.loss

    def _micro_batches(
        self, samples: Sequence[TrainingSample], indices: Sequence[int]
    ) -> list[list[int]]:
        """Return this rank's micro batches; every rank has equally many, some may be empty."""
        shares = divide_samples(
            [samples[i] for i in indices],
            micro_batch_tokens=self._config.policy.micro_batch_tokens,
            num_ranks=self._num_ranks,
            unit=self._unit,
            **self._layout,
        )
        return [[indices[i] for i in micro] for micro in shares[self._rank]]

    def _assemble(self, samples: Sequence[TrainingSample]) -> MicroBatch:
        """Pack samples, each with the temperature that it was sampled at."""
        temperature = self._config.rollout.temperature
        return assemble(
            samples,
            device=self._device,
            share_prompts=self._layout["share_prompts"],
            temperature=[for_agent(temperature, s.agent_index) for s in samples],
        )

    @torch.no_grad()
    def _logprobs(self, model: Compute, samples: Sequence[TrainingSample]) -> torch.Tensor:
        """Return log-probs [N, T] of all responses on every rank, 0 where padded."""
        logprobs = torch.zeros(response_mask(samples).shape, device=self._device)
        for micro in self._micro_batches(samples, range(len(samples))):
            rows, _ = model(self._assemble([samples[i] for i in micro]))
            logprobs[micro, : rows.shape[1]] = rows[: len(micro)]
        distributed.all_reduce(logprobs)
        return logprobs
