"""Bookkeeping of a step that is over: measure it, watch it, and write it down."""

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from tqdm import tqdm

from comas.engines.cluster.agents import Agents
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.batches import Batch, Batches
from comas.run.directory import MODELS, RunDirectory
from comas.run.guards import UpdateGuard, Watch, check_paid, gradient_plugins, mismatch_limit
from comas.run.metrics.step import Stopwatch, step_lines, step_metrics
from comas.run.model_cards import write_model_cards
from comas.run.prepared import Prepared
from comas.run.records import METRICS, read_rows
from comas.run.validation import validate_agents
from comas.types import ROLES, Metrics, TrainingSample, TurnKey, UpdateStats
from comas.verification import Verifier

log = logging.getLogger(__name__)


class Bookkeeping:
    """The records of a run as it goes on."""

    def __init__(
        self,
        prepared: Prepared,
        run: RunDirectory,
        bar: tqdm,
        *,
        agents: Agents,
        verifier: Verifier,
        batches: Batches,
    ) -> None:
        """``bar`` shows the steps, and knows how many there are."""
        config = prepared.config
        self._prepared = prepared
        self._run = run
        self._bar = bar
        self._agents = agents
        self._verifier = verifier
        self._batches = batches
        self._updates = UpdateGuard(gradient_plugins(config))
        # Of samples that are older than the weights, log-probs have to differ.
        limit = math.inf if config.training.max_staleness else mismatch_limit(config)
        alike = REWARD_SCHEMES[config.reward.scheme].pays_alike
        self._watch = Watch(read_rows(run.path / METRICS), mismatch_limit=limit, pays_alike=alike)

    def steps(self, *, after: int) -> Iterator[int]:
        """Yield every step after ``after``; the agents are validated as they are before the first.

        Raises ValueError when no validation gives the metric of ``training.keep_best``.
        """
        self._step = after
        if after == 0:
            metrics = self._validate()
            if (best := self._prepared.config.training.keep_best) and metrics.get(best) is None:
                raise ValueError(
                    f"training.keep_best names {best}, which this run's validations do not "
                    f"measure; they give {', '.join(metrics)}"
                )
            self._report(metrics)
        while self._step < self._bar.total:
            self._step += 1
            self._clock = Stopwatch()
            yield self._step

    def lap(self, phase: str) -> None:
        """End a phase of the step, such as rollout_s, which began when the one before ended."""
        self._clock.lap(phase)

    def enter(
        self,
        batch: Batch,
        buffers: Mapping[int, Sequence[TrainingSample]],
        stats: Mapping[int, UpdateStats],
    ) -> None:
        """Take down the step, after which a run that is killed goes on with the next; ``buffers``
        is policy -> what it was updated on.

        Raises RuntimeError when updates have changed nothing, or had no gradient that is finite,
        too often in a row, and ValueError when the first step pays nobody in a plug-in's role.
        """
        config, rewards = self._prepared.config, batch.rewards
        verdicts = batch.wait_for_verdicts()
        times = self._clock.times()
        due = partial(is_due, self._step, num_steps=self._bar.total)
        self._updates.check(buffers, stats)
        if self._step == 1 and not any(
            i.discussion.num_overlong_prompts for i in rewards.discussions
        ):
            check_paid(config, rewards.discussions, but_for=ROLES)  # roles of no dry run
        metrics = step_metrics(rewards, buffers, stats, verdicts, config=config)
        metrics |= {"rollout/staleness": batch.staleness, **times}
        self._watch.see(metrics, rewards.discussions)
        if due(every=config.training.validate_every):
            metrics |= self._validate()
            if (best := config.training.keep_best) and best not in metrics:  # of a resume
                log.warning(
                    "training.keep_best names %s, which is not measured: none is kept", best
                )
        self._run.save_discussions(
            self._step,
            rewards.discussions,
            verdicts=verdicts,
            answers=self._prepared.train.answers,
        )
        self._run.save_tokens(
            self._step,
            [item.discussion for item in rewards.discussions],
            advantages=advantages_by_turn(buffers, stats),
        )
        self._report(metrics | self._agents.recoveries.take_metrics(self._step))
        if due(every=config.training.save_every) or self._run.best_step() == self._step:
            started = time.monotonic()
            with self._run.checkpoint_folder(self._step) as folder:
                self._batches.save(folder)
                self._agents.save_checkpoint(folder)
            log.info("checkpoint of step %d: %.1f s", self._step, time.monotonic() - started)

    def save_models(self) -> None:
        """Write every agent's model as it is after the last step that was made."""
        save_models(self._prepared, self._run, self._agents, step=self._step)

    def _validate(self) -> Metrics:
        return validate_agents(
            self._prepared.validation,
            self._prepared.probe,
            self._prepared.config,
            generate=self._agents.generate,
            response_logprobs=self._agents.response_logprobs,
            judge_logprobs=self._agents.judge_logprobs,
            verifier=self._verifier,
            keep=partial(self._run.save_validation, self._step),
        )

    def _report(self, metrics: Metrics) -> None:
        """Write the step's metrics, and show the most telling."""
        metrics = metrics | self._agents.judge_metrics()
        self._run.log_metrics(self._step, metrics)
        for line in step_lines(self._step, self._bar.total, metrics):
            log.info(line)
        self._bar.update(self._step - self._bar.n)


def save_models(
    prepared: Prepared, run: RunDirectory, agents: Agents, *, step: int, name: str = MODELS
) -> None:
    """Write every agent's model after ``step``, with a card that says how it came about."""
    with run.models_folder(step, name=name) as folder:
        agents.save_models(folder)
        rows = [row for row in read_rows(run.path / METRICS) if row["step"] <= step]
        write_model_cards(folder, prepared, rows=rows, num_steps=step)


def is_due(step: int, *, every: int, num_steps: int) -> bool:
    """True if what is done ``every`` so many steps, and after the last, is done after ``step``.

    Step 0 stands for the start, where a checkpoint would hold nothing new: callers skip it.
    """
    return step % every == 0 or step == num_steps


def advantages_by_turn(
    buffers: Mapping[int, Sequence[TrainingSample]], stats: Mapping[int, UpdateStats]
) -> dict[TurnKey, Sequence[float]]:
    """The advantages of the tokens of every turn in ``buffers`` (policy -> what it was updated on);
    there are none of an update that compared pairs."""
    return {
        (sample.discussion_id, sample.turn_id): advantages
        for policy, update in stats.items()
        if update.advantages
        for sample, advantages in zip(buffers[policy], update.advantages, strict=True)
    }
