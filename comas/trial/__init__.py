"""``comas train --trial``: measures on the real engines what a run would learn from and cost.

It makes a step as ``comas/train.py`` does, but writes no run directory, checkpoint or model. Gold
answers are used to measure, and by rewards that ask for them.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from comas.data import QuestionSet, draw_batch, fixed_subset
from comas.engines.cluster.agents import Agents
from comas.policy_optimization.samples import collect_samples
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.prepared import Prepared
from comas.run.validation import validate_agents
from comas.trial.costs import costs_of, describe_costs
from comas.trial.signal import Batch, Update, describe_signal
from comas.types import Discussion, Question, Rewards
from comas.utils.progress import progress_bar
from comas.utils.terminal import in_columns
from comas.verification import Verifier
from comas.verification.solutions import verify_solutions

FIRST_DISCUSSIONS = 4
"""Discussions of the first batch, whose time says how many more fit into the budget."""
IN_FLIGHT = 48
"""Discussions at once, even if the run's own batches are smaller, to keep the engines busy."""
MAX_DISCUSSIONS = 400
BUDGET_S = 600.0
DISCUSSED, UPDATED = 0.6, 0.85
"""Shares of the budget by which discussions, and then the update, should be done."""
FIRST_QUESTIONS, VALIDATED = 4, 100
"""Held-out questions that are asked first, and at most."""


def try_out(
    prepared: Prepared,
    agents: Agents,
    *,
    discuss: Callable[..., list[Discussion]],
    budget_s: float = BUDGET_S,
) -> Iterator[str]:
    """Hold some of a run's first discussions with ``discuss`` (of ``comas.train``), make an update,
    and yield the report: what was learnt from before a validation, which may fail, and the costs.

    All discussions come before the update, so the agents are untrained. Each part starts small, and
    then does as much as fits into ``budget_s`` seconds at the measured pace; it is never less than
    the small start. Raises EngineError if engines fail.
    """
    ends = time.monotonic() + budget_s
    with Verifier(isolation=prepared.isolation, chosen=prepared.config.verifiers) as verifier:
        trial = Trial(prepared, agents, verifier, discuss)
        agents.sync_weights()
        batches = trial.sample_until(ends - (1 - DISCUSSED) * budget_s)
        with progress_bar("update"):
            update = trial.update_until(ends - (1 - UPDATED) * budget_s, batches)
        yield from describe_signal(batches, update, config=prepared.config)
        validation_s = trial.validate_until(ends)
    costs = costs_of(batches, update, validation_s, config=prepared.config)
    told = describe_costs(costs, agents.memory_peaks(), prepared)
    yield from ("", "what does it cost? as long as responses keep their lengths")
    yield from in_columns([[f"  {name}", words] for name, words in told])
    yield "trial: no run was written"


@dataclass(frozen=True)
class Trial:
    prepared: Prepared
    agents: Agents
    verifier: Verifier
    discuss: Callable[..., list[Discussion]]

    def sample_until(self, time_s: float) -> list[Batch]:
        """Hold batches of discussions until time is up or ``MAX_DISCUSSIONS`` are held: first a
        small one, then at most one like the run's, then larger ones."""
        config, known = self.prepared.config, self.prepared.train.questions
        copies, size = config.interaction.prompt_reuse, min(len(known), MAX_DISCUSSIONS)
        batches: list[Batch] = []
        left: list[Question] = []
        wanted, fit = FIRST_DISCUSSIONS, IN_FLIGHT
        num_held = 0
        while fit > 0 and num_held < MAX_DISCUSSIONS:
            step = len(batches) + 1
            left = left or draw_batch(known, step=step - 1, batch_size=size, seed=config.seed)
            wanted = min(wanted, MAX_DISCUSSIONS - num_held)
            num = min(fit, math.ceil(wanted / copies), len(left))
            batches.append(self.sample(left[:num], step=step))
            left, num_held = left[num:], num_held + num * copies
            fit = int((time_s - time.monotonic()) / (batches[-1].rollout_s / num))
            own = config.rollout.batch_size * copies
            wanted = max(IN_FLIGHT, own) if step > 1 else min(IN_FLIGHT, own)
        return batches

    def sample(self, questions: Sequence[Question], *, step: int) -> Batch:
        """Hold, reward and verify the discussions of ``questions``."""
        started = time.monotonic()
        config, sizes = self.prepared.config, self.prepared.sizes
        turns = sizes.num_turns * len(questions) // config.rollout.batch_size
        part = replace(self.prepared, sizes=replace(sizes, num_turns=turns))
        discussions = self.discuss(part, self.agents, step=step, questions=questions)
        verdicts = verify_solutions(self.verifier, discussions, answers=self.prepared.train.answers)
        pay = REWARD_SCHEMES[config.reward.scheme]
        rewards = pay(discussions, verdicts, seed=config.seed, step=step)
        return Batch(rewards, rollout_s=time.monotonic() - started, verdicts=verdicts())

    def update_until(self, time_s: float, batches: Sequence[Batch]) -> Update:
        """Update on the first batch to warm up, then on as many discussions of the last batch as
        there is time for. Returns the last update made."""
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
        """Update all trained policies on ``batch`` and sync their engines."""
        config = self.prepared.config
        samples = collect_samples(
            batch.rewards.discussions,
            policy_of_agent=config.policy_of_agent,
            mask_truncated=config.algorithm.mask_truncated,
        )
        buffers = {policy: samples[policy] for policy in config.trained_policies}
        started = time.monotonic()
        wait_for_update = self.agents.begin_update(buffers, step=step)
        # As in a run, verifying takes cores from the update.
        discussions = [item.discussion for item in batch.rewards.discussions]
        verdicts = verify_solutions(self.verifier, discussions, answers=self.prepared.train.answers)
        stats = wait_for_update()
        updated = time.monotonic()
        self.agents.sync_weights()  # slow on shared GPUs
        synced = time.monotonic()
        verdicts()
        return Update(batch, buffers, stats, updated - started, synced - updated)

    def validate_until(self, time_s: float) -> float:
        """Return the seconds of a whole validation, estimated from a few questions, then from as
        many as there is time for."""
        questions = len(self.prepared.validation.questions)
        whole_s = self.validate(min(FIRST_QUESTIONS, questions))
        fit = int((time_s - time.monotonic()) / max(whole_s / questions, 1e-9))
        num = min(fit, VALIDATED, questions)
        return self.validate(num) if num > FIRST_QUESTIONS else whole_s

    def validate(self, num: int) -> float:
        """Return the seconds of a whole validation, estimated from ``num`` questions."""
        prepared = self.prepared
        questions, answers = prepared.validation.questions, prepared.validation.answers
        started = time.monotonic()
        asked = replace(
            prepared,
            validation=QuestionSet(tuple(fixed_subset(questions, num)), answers),
            probe=prepared.probe[: math.ceil(len(prepared.probe) * num / len(questions))],
        )
        validate_agents(asked, self.agents, self.verifier, known={})
        return (time.monotonic() - started) * len(questions) / num
