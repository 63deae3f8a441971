"""What happens after each step: its metrics, warnings, records, validation and checkpoint."""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tqdm import tqdm

from comas.engines.cluster.agents import Agents
from comas.interaction.held import outcome_of
from comas.policy_optimization.update_stats import UpdateStats
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.batches import Batch, Batches
from comas.run.directory import VALIDATIONS, RunDirectory
from comas.run.guards import UpdateGuard, Watch, check_paid, mismatch_limit
from comas.run.metrics.step import step_lines, step_metrics
from comas.run.model_cards import write_model_cards
from comas.run.prepared import Prepared
from comas.run.records import METRICS, read_rows
from comas.run.status import MODELS
from comas.run.validation import Known, validate_agents
from comas.types import Metrics, TrainingSample, TurnKey
from comas.verification import Verifier

log = logging.getLogger(__name__)


@dataclass
class Bookkeeping:
    prepared: Prepared
    run: RunDirectory
    bar: tqdm
    """``bar.total`` is the number of steps."""
    agents: Agents
    verifier: Verifier
    batches: Batches

    def __post_init__(self) -> None:
        config = self.prepared.config
        self._updates, self._known = UpdateGuard(), Known()
        # Samples that are older than the weights have other log-probs.
        limit = math.inf if config.training.max_staleness else mismatch_limit(config)
        alike = REWARD_SCHEMES[config.reward.scheme].pays_alike
        rows = read_rows(self.run.path / METRICS)
        self._watch = Watch(rows, mismatch_limit=limit, pays_alike=alike)

    def steps(self, *, after: int) -> Iterator[int]:
        """Yield the steps after ``after``; validates the untrained agents before step 1. Raises
        ValueError if validations lack the metric ``training.keep_best``."""
        self._step = after
        if after == 0:
            self._report(self._validate())
        while self._step < self.bar.total:
            self._step += 1
            self._times = defaultdict[str, float](float)
            self._started = self._lap_began = time.monotonic()
            yield self._step

    def lap(self, phase: str) -> None:
        """End a phase of the step, such as ``rollout_s``, or a part of it; the next one begins."""
        now = time.monotonic()
        self._times[f"time/{phase}"] += now - self._lap_began
        self._lap_began = now

    def enter(
        self,
        batch: Batch,
        buffers: Mapping[int, Sequence[TrainingSample]],
        stats: Mapping[int, UpdateStats],
    ) -> None:
        """Record a finished step, and validate and save a checkpoint if due. ``buffers`` maps each
        policy to the samples of its update. Raises RuntimeError as ``UpdateGuard.check`` does, and
        ValueError if the first step rewards nobody in a role of a plug-in."""
        config, rewards = self.prepared.config, batch.rewards
        verdicts = batch.wait_for_verdicts()
        times = {**self._times, "time/step_s": time.monotonic() - self._started}
        due = partial(is_due, self._step, num_steps=self.bar.total)
        self._updates.check(buffers, stats)
        discussions = [item.discussion for item in rewards.discussions]
        failed = any(of.error for of in filter(None, map(outcome_of, discussions)))
        if self._step == 1 and not failed and not any(d.num_overlong_prompts for d in discussions):
            check_paid(config, rewards.discussions, is_dry_run=False)
        metrics = step_metrics(rewards, stats, verdicts, config=config)
        metrics |= {"rollout/staleness": batch.staleness, **times}
        self._watch.see(metrics, rewards.discussions)
        if due(every=config.training.validate_every):
            metrics |= self._validate()
        answers, advantages = self.prepared.train.answers, advantages_by_turn(buffers, stats)
        self.run.save_discussions(
            self._step, rewards.discussions, verdicts=verdicts, answers=answers
        )
        self.run.save_tokens(self._step, discussions, advantages=advantages)
        self._report(metrics)
        if due(every=config.training.save_every) or self.run.best_step() == self._step:
            started = time.monotonic()
            with self.run.checkpoint_folder(self._step) as folder:
                self.batches.save(folder)
                self.agents.save_checkpoint(folder)
            log.info("checkpoint of step %d: %.1f s", self._step, time.monotonic() - started)

    def save_models(self) -> None:
        save_models(self.prepared, self.run, self.agents, step=self._step)

    def _validate(self) -> Metrics:
        keep = partial(self.run.write_lines, VALIDATIONS, self._step)
        known, best = self._known, self.prepared.config.training.keep_best
        metrics = validate_agents(self.prepared, self.agents, self.verifier, known=known, keep=keep)
        if best is not None and best not in metrics:
            given = ", ".join(metrics)
            error = f"training.keep_best={best} is not measured by validations, which give {given}"
            if self._step == 0:
                raise ValueError(error)
            log.warning("%s: no best step is kept", error)  # a resume has set it
        return metrics

    def _report(self, metrics: Metrics) -> None:
        """Write the step's metrics, and log the main ones."""
        self.run.log_metrics(self._step, metrics)
        for line in step_lines(self._step, self.bar.total, metrics):
            log.info(line)
        self.bar.update(self._step - self.bar.n)


def save_models(
    prepared: Prepared, run: RunDirectory, agents: Agents, *, step: int, name: str = MODELS
) -> None:
    """Write every agent's model after ``step``, with a model card."""
    with run.models_folder(step, name=name) as folder:
        agents.save_models(folder)
        rows = [row for row in read_rows(run.path / METRICS) if row["step"] <= step]
        write_model_cards(folder, prepared, rows=rows, num_steps=step)


def is_due(step: int, *, every: int, num_steps: int) -> bool:
    """Return True if ``step`` is a multiple of ``every``, or the last step."""
    return step % every == 0 or step == num_steps


def advantages_by_turn(
    buffers: Mapping[int, Sequence[TrainingSample]], stats: Mapping[int, UpdateStats]
) -> dict[TurnKey, Sequence[float]]:
    """Return the advantages of each turn's tokens; updates that compare pairs have none."""
    return {
        (sample.discussion_id, sample.turn_id): advantages
        for policy, update in stats.items()
        if update.advantages
        for sample, advantages in zip(buffers[policy], update.advantages, strict=True)
    }
