"""``comas train --trial``: what a run would learn from and cost, measured on its real engines.

It reads like a step of ``comas/train.py``, but keeps nothing: no run directory, no checkpoint and
no model, and the engines end. Answers are used to measure, and where the reward asks for them.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from comas.config.schema import Config
from comas.data import QuestionSet, draw_batch, fixed_subset
from comas.engines.cluster.agents import Agents
from comas.policy_optimization.samples import collect_samples
from comas.reward_formulation import REWARD_SCHEMES, offer_evidence
from comas.run.metrics.step import Stopwatch
from comas.run.prepared import Prepared
from comas.run.validation import validate_agents
from comas.trial.costs import Costs, describe_costs
from comas.trial.judging import detectable
from comas.trial.rounding import describe_rounding
from comas.trial.signal import Batch, Update, describe_signal
from comas.types import Discussion, Question, Rewards
from comas.utils.progress import progress_bar
from comas.utils.terminal import in_columns
from comas.verification import Verifier
from comas.verification.solutions import verify_solutions

FIRST_DISCUSSIONS = 4
"""Held first: how long they take tells how many more fit into the time."""
IN_FLIGHT = 48
"""Discussions that are held at once, also where a run's own batches are smaller: they keep the
engines busy."""
MAX_DISCUSSIONS = 400
DETECTABLE = 0.1
"""Distance of an AUC from chance that is found (``detectable``): no more discussions are held."""
FEWEST_QUESTIONS = 30
"""Questions that are tried before, if the data has so many: copies of one question are alike."""
BUDGET_S = 600.0
DISCUSSED, UPDATED = 0.6, 0.85
"""Shares of the budget that have passed when discussions, and the update, should be over."""
FIRST_QUESTIONS, VALIDATED = 4, 100
"""Held-out questions that are asked first, and at most."""


def try_out(
    prepared: Prepared,
    agents: Agents,
    *,
    discuss: Callable[..., list[Discussion]],
    budget_s: float = BUDGET_S,
) -> list[str]:
    """Hold some of a run's first discussions by ``discuss`` (of ``comas.train``), make an update,
    and return what they show.

    All discussions come before the update, so they are of the agents as they are. Each part begins
    small, and goes on with as much as fits into ``budget_s`` seconds at the pace that was measured;
    the small beginning is made in any case. Raises EngineError when engines fail.
    """
    config = prepared.config
    ends = time.monotonic() + budget_s
    with Verifier(isolation=prepared.isolation, chosen=config.verifiers) as verifier:
        trial = Trial(prepared, agents, verifier, discuss)
        agents.sync_weights()
        batches = trial.sample_until(ends - (1 - DISCUSSED) * budget_s)
        with progress_bar("update"):
            update = trial.update_until(ends - (1 - UPDATED) * budget_s, batches)
        validation_s = trial.validate_until(ends)
    costs = costs_of(batches, update, validation_s, config=config)
    told = describe_costs(costs, agents.memory_peaks(), prepared)
    return [
        *describe_signal(batches, update, config=config),
        *describe_rounding(prepared),
        "",
        "what does it cost? as long as responses keep their lengths",
        *in_columns([[f"  {name}", words] for name, words in told]),
        "trial: no run was written",
    ]


@dataclass(frozen=True)
class Trial:
    """The parts of a step, as in a run, on its engines."""

    prepared: Prepared
    agents: Agents
    verifier: Verifier
    discuss: Callable[..., list[Discussion]]

    def sample_until(self, time_s: float) -> list[Batch]:
        """Hold batches of discussions, of one question or more, until there are enough, or no time
        for more: a small one, one as in the run or a part of it, then larger ones."""
        config, known = self.prepared.config, self.prepared.train.questions
        copies, size = config.interaction.prompt_reuse, min(len(known), MAX_DISCUSSIONS)
        batches: list[Batch] = []
        left: list[Question] = []
        wanted, fit = FIRST_DISCUSSIONS, IN_FLIGHT
        num_tried = 0
        while fit > 0 and (num_tried < min(FEWEST_QUESTIONS, len(known)) or not enough(batches)):
            step = len(batches) + 1
            left = left or draw_batch(known, step=step, batch_size=size, seed=config.seed)
            num = min(fit, math.ceil(wanted / copies), len(left))
            chosen, left, num_tried = left[:num], left[num:], num_tried + num
            batches.append(self.sample(chosen, step=step))
            fit = int((time_s - time.monotonic()) / (batches[-1].rollout_s / num))
            wanted = IN_FLIGHT if step > 1 else min(IN_FLIGHT, config.rollout.batch_size * copies)
        return batches

    def sample(self, questions: Sequence[Question], *, step: int) -> Batch:
        """Hold the discussions of ``questions``, and reward and verify them."""
        started = time.monotonic()
        part = in_part(self.prepared, len(questions))
        discussions = self.discuss(part, self.agents, step=step, questions=questions)
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

    def update_until(self, time_s: float, batches: Sequence[Batch]) -> Update:
        """Update on the first batch, which warms everything up, then on as many discussions of the
        last as there is time for; returns the latter, or else the former."""
        small = self.update(batches[0], step=1)
        last = batches[-1].rewards.discussions
        pace_s = small.update_s / len(batches[0].rewards.discussions)
        num = min(len(last), int((time_s - time.monotonic()) / max(pace_s, 1e-9)))
        if len(batches) == 1 or num < len(batches[0].rewards.discussions):
            return small
        rewards = Rewards(last[:num], batches[-1].rewards.metrics)
        held = {item.discussion.discussion_id for item in rewards.discussions}
        verdicts = {key: of for key, of in batches[-1].verdicts.items() if key[0] in held}
        return self.update(Batch(rewards, batches[-1].rollout_s, verdicts), step=2)

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
        return Update(batch, buffers, stats, times["time/update"], times["time/sync"])

    def validate_until(self, time_s: float) -> float:
        """Return the seconds that a whole validation takes, by a few questions, then by as many as
        there is time for."""
        questions = len(self.prepared.validation.questions)
        whole_s = self.validate(min(FIRST_QUESTIONS, questions))
        fit = int((time_s - time.monotonic()) / max(whole_s / questions, 1e-9))
        num = min(fit, VALIDATED, questions)
        return self.validate(num) if num > FIRST_QUESTIONS else whole_s

    def validate(self, num: int) -> float:
        """Return the seconds of a whole validation, of which ``num`` questions are asked."""
        prepared = self.prepared
        questions, answers = prepared.validation.questions, prepared.validation.answers
        started = time.monotonic()
        asked = replace(
            prepared,
            validation=QuestionSet(tuple(fixed_subset(questions, num)), answers),
            probe=prepared.probe[: math.ceil(len(prepared.probe) * num / len(questions))],
        )
        validate_agents(asked, self.agents, self.verifier)
        return (time.monotonic() - started) * len(questions) / num


def costs_of(
    batches: Sequence[Batch], update: Update, validation_s: float, *, config: Config
) -> Costs:
    """Return what was measured, of whole steps: of the batches that are nearest to a step in size
    (the first, which warmed the engines up, only where there is no other), and of the update."""
    num_held = config.rollout.batch_size * config.interaction.prompt_reuse
    warm = batches[1:] or batches
    sizes = [len(batch.rewards.discussions) for batch in warm]
    near = min(sizes, key=lambda num: abs(num - num_held))
    trained = [sample for samples in update.buffers.values() for sample in samples]
    parts = num_held / len(update.batch.rewards.discussions)
    return Costs(
        rollouts_s=[
            batch.rollout_s * num_held / near
            for batch, num in zip(warm, sizes, strict=True)
            if num == near
        ],
        sampled_tokens=[
            sum(turn.generation.num_sampled_tokens for turn in item.discussion.turns)
            for batch in batches
            for item in batch.rewards.discussions
        ],
        update_s=update.update_s * parts if trained else 0.0,
        trained_tokens=round(
            parts * sum(len(s.prompt_token_ids) + len(s.response_token_ids) for s in trained)
        ),
        sync_s=update.sync_s,
        validation_s=validation_s,
        discussions=(near, num_held),
        overlaps=config.training.max_staleness > 0,
    )


def in_part(prepared: Prepared, num_questions: int) -> Prepared:
    """Return a run whose batches hold ``num_questions``."""
    config, sizes = prepared.config, prepared.sizes
    turns = sizes.num_turns * num_questions // config.rollout.batch_size
    return replace(
        prepared,
        config=replace(config, rollout=replace(config.rollout, batch_size=num_questions)),
        sizes=replace(sizes, num_turns=turns),
    )


def enough(batches: Sequence[Batch]) -> bool:
    """True if more discussions would add little to what is said of the judges."""
    verdicts = Counter(of for batch in batches for of in batch.verdicts.values() if of != "failed")
    right = verdicts["correct"]
    num_held = sum(len(batch.rewards.discussions) for batch in batches)
    return num_held >= MAX_DISCUSSIONS or detectable(right, verdicts.total() - right) <= DETECTABLE
