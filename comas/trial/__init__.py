"""``comas train --trial``: what a run would learn from and cost, measured on its real engines.

It reads like a step of ``comas/train.py``, but keeps nothing: no run directory, no checkpoint and
no model, and the engines end. Answers are used to measure, and where the reward asks for them.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from comas.config.schema import Config
from comas.data import QuestionSet, fixed_subset
from comas.engines.cluster.agents import Agents
from comas.policy_optimization.samples import collect_samples
from comas.reward_formulation import REWARD_SCHEMES, offer_evidence
from comas.run.metrics.step import Stopwatch
from comas.run.prepared import Prepared
from comas.run.validation import validate_agents
from comas.trial.costs import Costs, describe_costs
from comas.trial.rounding import describe_rounding
from comas.trial.signal import Batch, describe_signal
from comas.types import Discussion, TrainingSample, UpdateStats
from comas.utils.progress import progress_bar
from comas.utils.terminal import in_columns
from comas.verification import Verifier
from comas.verification.solutions import verify_solutions

WARM_UP_DISCUSSIONS = 4
"""Held before anything is measured, as the first ones are slower."""
MIN_DISCUSSIONS, MAX_DISCUSSIONS = 48, 96
"""The least are at most one batch: of a larger one a part is tried."""
ENOUGH_S = 30.0
"""Seconds of rollout after which no more than ``MIN_DISCUSSIONS`` are held."""

VALIDATED = 100
"""Held-out questions that are asked."""


def try_out(
    prepared: Prepared, agents: Agents, *, discuss: Callable[..., list[Discussion]]
) -> list[str]:
    """Hold some of a run's first discussions by ``discuss`` (of ``comas.train``), make an update,
    and return what they show.

    All discussions come before the update, so they are of the agents as they are. A small batch and
    an update on it come first and warm everything up. Raises EngineError when engines fail.
    """
    config = prepared.config
    part, small = (in_part(prepared, most) for most in (MIN_DISCUSSIONS, WARM_UP_DISCUSSIONS))
    tried, whole = part.config.rollout.batch_size, config.rollout.batch_size
    per_batch = tried * config.interaction.prompt_reuse
    with Verifier(isolation=prepared.isolation, chosen=config.verifiers) as verifier:
        trial = Trial(prepared, agents, verifier, discuss)
        agents.sync_weights()
        warm_up = trial.sample(small, step=0)
        batches = [trial.sample(part, step=1)]
        while goes_on(per_batch * len(batches), seconds=sum(batch.rollout_s for batch in batches)):
            batches.append(trial.sample(part, step=len(batches) + 1))
        with progress_bar("update"):
            trial.update(warm_up, step=1)
            update = trial.update(batches[-1], step=2)
        trial.validate(most=WARM_UP_DISCUSSIONS)
        validation_s = trial.validate(most=VALIDATED)
    partly = f", by {tried} of a step's {whole} questions, which keep engines less busy"
    costs = costs_of(batches, update, validation_s, config=config, batches_per_step=whole / tried)
    told = describe_costs(costs, agents.memory_peaks(), prepared)
    return [
        *describe_signal(batches, update.buffers, update.stats, config=config),
        *describe_rounding(prepared),
        "",
        "what does it cost? as long as responses keep their lengths" + partly * (tried < whole),
        *in_columns([[f"  {name}", words] for name, words in told]),
        "trial: no run was written",
    ]


class Update(NamedTuple):
    """An update, and what it took."""

    buffers: dict[int, list[TrainingSample]]
    """Policy -> what it was trained on."""
    stats: dict[int, UpdateStats]
    update_s: float
    sync_s: float


@dataclass(frozen=True)
class Trial:
    """The parts of a step, as in a run, on its engines."""

    prepared: Prepared
    agents: Agents
    verifier: Verifier
    discuss: Callable[..., list[Discussion]]

    def sample(self, part: Prepared, *, step: int) -> Batch:
        """Hold the discussions of a batch of ``part``, and reward and verify them."""
        started = time.monotonic()
        discussions = self.discuss(part, self.agents, step=step)
        verdicts = verify_solutions(self.verifier, discussions, answers=part.train.answers)
        logprobs, seed = self.agents.response_logprobs, part.config.seed
        evidence = offer_evidence(
            verdicts,
            response_logprobs=logprobs,
            judge_logprobs=self.agents.judge_logprobs,
            seed=seed,
            step=step,
        )
        rewards = REWARD_SCHEMES[part.config.reward.scheme](discussions, evidence=evidence)
        return Batch(rewards, rollout_s=time.monotonic() - started, verdicts=verdicts())

    def update(self, batch: Batch, *, step: int) -> Update:
        """Update all trained policies on ``batch``, and sync them."""
        config = self.prepared.config
        samples = collect_samples(
            batch.rewards.discussions,
            policy_of_agent=config.policy_of_agent,
            mask_truncated=config.algorithm.mask_truncated,
        )
        buffers = {policy: samples[policy] for policy in config.trained_policies}
        clock = Stopwatch()
        wait_for_update = self.agents.begin_update(buffers, step=step)
        # Beside the update of a run as well, from which it takes cores.
        discussions = [item.discussion for item in batch.rewards.discussions]
        answers = self.prepared.train.answers
        verdicts = verify_solutions(self.verifier, discussions, answers=answers)
        stats = wait_for_update()
        clock.lap("update")
        self.agents.sync_weights()  # as after every update; on shared GPUs it takes long
        clock.lap("sync")
        verdicts()
        times = clock.times()
        return Update(buffers, stats, times["time/update"], times["time/sync"])

    def validate(self, *, most: int) -> float:
        """Return the seconds of a whole validation, of which ``most`` questions are asked."""
        prepared = self.prepared
        questions, answers = prepared.validation.questions, prepared.validation.answers
        num = min(most, len(questions))
        started = time.monotonic()
        validate_agents(
            QuestionSet(tuple(fixed_subset(questions, num)), answers),
            prepared.probe[: math.ceil(len(prepared.probe) * num / len(questions))],
            prepared.config,
            generate=self.agents.generate,
            response_logprobs=self.agents.response_logprobs,
            judge_logprobs=self.agents.judge_logprobs,
            verifier=self.verifier,
        )
        return (time.monotonic() - started) * len(questions) / num


def costs_of(
    batches: Sequence[Batch],
    update: Update,
    validation_s: float,
    *,
    config: Config,
    batches_per_step: float,
) -> Costs:
    """Return what was measured of ``batches``, of the ``update`` on the last, and of validation."""
    trained = [sample for samples in update.buffers.values() for sample in samples]
    return Costs(
        rollouts_s=[batch.rollout_s for batch in batches],
        sampled_tokens=[
            sum(turn.generation.num_sampled_tokens for turn in item.discussion.turns)
            for batch in batches
            for item in batch.rewards.discussions
        ],
        update_s=update.update_s if trained else 0.0,
        trained_tokens=sum(len(s.prompt_token_ids) + len(s.response_token_ids) for s in trained),
        sync_s=update.sync_s,
        validation_s=validation_s,
        batches_per_step=batches_per_step,
        overlaps=config.training.max_staleness > 0,
    )


def in_part(prepared: Prepared, num_discussions: int) -> Prepared:
    """Return a run whose batch holds about so many discussions, where its own holds more."""
    config, sizes = prepared.config, prepared.sizes
    whole = config.rollout.batch_size
    num = min(whole, math.ceil(num_discussions / config.interaction.prompt_reuse))
    return replace(
        prepared,
        config=replace(config, rollout=replace(config.rollout, batch_size=num)),
        sizes=replace(sizes, num_turns=sizes.num_turns * num // whole),
    )


def goes_on(num_held: int, *, seconds: float) -> bool:
    """True if another batch is tried after so many discussions."""
    return num_held < MIN_DISCUSSIONS or (num_held < MAX_DISCUSSIONS and seconds < ENOUGH_S)
