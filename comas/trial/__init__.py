"""``comas train --trial``: what a run would learn from and cost, measured on its real engines.

It reads like a step of ``comas/train.py``, but keeps nothing: no run directory, no checkpoint and
no model, and the engines end. Answers are used to measure, and where the reward asks for them.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace

from comas.data import QuestionSet, fixed_subset
from comas.engines.cluster.agents import Agents
from comas.policy_optimization.samples import collect_samples
from comas.reward_formulation import REWARD_SCHEMES, offer_evidence
from comas.run.metrics.step import Stopwatch
from comas.run.prepared import Prepared
from comas.run.validation import validate_agents
from comas.trial.costs import Costs, describe_costs
from comas.trial.signal import Batch, describe_signal
from comas.types import Discussion, TrainingSample
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
    """Hold some of a run's first discussions, make an update, and return what they show.

    All discussions come before the update, so they are of the agents as they are. A small batch and
    an update on it come first and warm everything up.

    Args:
        discuss: holds the discussions of a step's batch, as in ``comas.train``.

    Raises:
        EngineError: engines failed.
    """
    config = prepared.config
    part, small = (in_part(prepared, most) for most in (MIN_DISCUSSIONS, WARM_UP_DISCUSSIONS))
    tried, whole = part.config.rollout.batch_size, config.rollout.batch_size
    per_batch = tried * config.interaction.prompt_reuse
    with Verifier(isolation=prepared.isolation, chosen=config.verifiers) as verifier:

        def sample(prepared: Prepared, *, step: int) -> Batch:
            started = time.monotonic()
            discussions = discuss(prepared, agents, step=step)
            verdicts = verify_solutions(verifier, discussions, answers=prepared.train.answers)
            evidence = offer_evidence(
                verdicts, response_logprobs=agents.response_logprobs, seed=config.seed, step=step
            )
            rewards = REWARD_SCHEMES[config.reward.scheme](discussions, evidence=evidence)
            return Batch(rewards, rollout_s=time.monotonic() - started, verdicts=verdicts())

        agents.sync_weights()
        warm_up = sample(small, step=0)
        batches = [sample(part, step=1)]
        while goes_on(per_batch * len(batches), seconds=sum(batch.rollout_s for batch in batches)):
            batches.append(sample(part, step=len(batches) + 1))
        with progress_bar("update"):
            agents.begin_update(_buffers(warm_up, prepared), step=1)()
            agents.sync_weights()
            buffers = _buffers(batches[-1], prepared)
            clock = Stopwatch()
            wait_for_update = agents.begin_update(buffers, step=2)
            # Beside the update of a run as well, from which it takes cores.
            last = [item.discussion for item in batches[-1].rewards.discussions]
            verdicts = verify_solutions(verifier, last, answers=prepared.train.answers)
            stats = wait_for_update()
            clock.lap("update")
            agents.sync_weights()  # as after every update; on shared GPUs it takes long
            clock.lap("sync")
        verdicts()
        _validate(prepared, agents, verifier, most=WARM_UP_DISCUSSIONS)
        validation_s = _validate(prepared, agents, verifier, most=VALIDATED)
    times = clock.times()
    trained = [sample for samples in buffers.values() for sample in samples]
    costs = Costs(
        rollouts_s=[batch.rollout_s for batch in batches],
        sampled_tokens=[
            sum(turn.generation.num_sampled_tokens for turn in item.discussion.turns)
            for batch in batches
            for item in batch.rewards.discussions
        ],
        update_s=times["time/update"] if trained else 0.0,
        trained_tokens=sum(len(s.prompt_token_ids) + len(s.response_token_ids) for s in trained),
        sync_s=times["time/sync"],
        validation_s=validation_s,
        batches_per_step=whole / tried,
        overlaps=config.training.max_staleness > 0,
    )
    told = describe_costs(costs, agents.memory_peaks(), prepared)
    partly = f", by {tried} of a step's {whole} questions, which keep engines less busy"
    return [
        *describe_signal(batches, buffers, stats, config=config),
        "",
        "what does it cost? as long as responses keep their lengths" + partly * (tried < whole),
        *in_columns([[f"  {name}", words] for name, words in told]),
        "trial: no run was written",
    ]


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


def _buffers(batch: Batch, prepared: Prepared) -> dict[int, list[TrainingSample]]:
    """Policy -> what it is trained on, of those that are not frozen."""
    config = prepared.config
    samples = collect_samples(
        batch.rewards.discussions,
        policy_of_agent=config.policy_of_agent,
        mask_truncated=config.algorithm.mask_truncated,
    )
    return {policy: samples[policy] for policy in config.trained_policies}


def _validate(prepared: Prepared, agents: Agents, verifier: Verifier, *, most: int) -> float:
    """Return the seconds of a whole validation, of which ``most`` questions are asked."""
    questions, answers = prepared.validation.questions, prepared.validation.answers
    num = min(most, len(questions))
    started = time.monotonic()
    validate_agents(
        QuestionSet(tuple(fixed_subset(questions, num)), answers),
        prepared.probe[: math.ceil(len(prepared.probe) * num / len(questions))],
        prepared.config,
        generate=agents.generate,
        response_logprobs=agents.response_logprobs,
        verifier=verifier,
    )
    return (time.monotonic() - started) * len(questions) / num
