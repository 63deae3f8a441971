"""What a run does about a step that is over: it measures, watches, writes down and decides whether
to go on."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tqdm import tqdm

from comas.config.schema import Config
from comas.policy_optimization.samples import advantages_by_turn
from comas.run.ahead import Batch
from comas.run.checkpoints import Begin, CheckpointWriter
from comas.run.directory import RunDirectory
from comas.run.guards import UpdateGuard, Watch, mismatch_limit
from comas.run.metrics.step import Stopwatch, step_lines, step_metrics
from comas.run.records import METRICS, read_rows
from comas.run.stopping import Stopping
from comas.types import AnswerKey, Metrics, TrainingSample, UpdateStats

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepOutcome:
    """What one step made."""

    step: int
    batch: Batch
    staleness: int
    """Updates that the agents had not had yet as they discussed."""
    buffers: Mapping[int, Sequence[TrainingSample]]
    """Policy -> what it was updated on."""
    stats: Mapping[int, UpdateStats]
    clock: Stopwatch


class Bookkeeping:
    """The records of a run as it goes on; a context manager that finishes its last checkpoint."""

    def __init__(
        self,
        config: Config,
        run: RunDirectory,
        bar: tqdm,
        *,
        validate: Callable[[], Metrics],
        begin_checkpoint: Begin,
        take_recoveries: Callable[[int], Metrics],
        answers: AnswerKey,
    ) -> None:
        """``validate`` is called where a validation is due, ``begin_checkpoint`` where a checkpoint
        is; ``take_recoveries`` says what was started again before a step. ``answers`` are written
        beside the discussions, and go nowhere else."""
        earlier = read_rows(run.path / METRICS)
        self._config = config
        self._run = run
        self._bar = bar
        self._validate = validate
        self._take_recoveries = take_recoveries
        self._answers = answers
        self._updates = UpdateGuard()
        # Of samples that are older than the weights, log-probs have to differ.
        limit = math.inf if config.training.max_staleness else mismatch_limit(config)
        self._watch = Watch(earlier, mismatch_limit=limit)
        self._stopping = Stopping(config, earlier)
        self._checkpoints = CheckpointWriter(
            run.checkpoint_folder, begin_checkpoint, timeout_s=config.cluster.call_timeout_s
        )

    def __enter__(self) -> Self:
        self._checkpoints.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._checkpoints.__exit__(*error)

    def reason_to_end(self) -> str | None:
        """Return why the run ends before its last step; None: it goes on."""
        return self._stopping.reason()

    def begin(self) -> None:
        """Validate the agents as they are before the first step."""
        self._report(0, self._validate())

    def enter(self, outcome: StepOutcome) -> None:
        """Take down a step, after which a run that is killed goes on with the next.

        Raises RuntimeError when updates have changed nothing, or had no gradient that is finite,
        too often in a row.
        """
        step, batch, due = outcome.step, outcome.batch, outcome.buffers
        rewards = batch.rewards
        self._updates.check(
            due, outcome.stats, rewards.discussions, policy_of_agent=self._config.policy_of_agent
        )
        verdicts = batch.wait_for_verdicts()
        metrics = step_metrics(rewards, due, outcome.stats, verdicts, config=self._config)
        metrics |= {"rollout/staleness": outcome.staleness, **outcome.clock.times()}
        self._watch.see(metrics, rewards.discussions)
        if self._is_due(self._config.training.validate_every, step, metrics):
            metrics |= self._validate()
        # Before anything of this step is on record: at most one step can be lost.
        self._checkpoints.wait()
        self._run.save_discussions(
            step,
            rewards.discussions,
            verdicts=verdicts,
            answers=self._answers,
        )
        self._run.save_tokens(
            step,
            [item.discussion for item in rewards.discussions],
            advantages=advantages_by_turn(due, outcome.stats),
        )
        self._report(step, metrics | self._take_recoveries(step))
        if self._is_due(self._config.training.save_every, step) or self._stopping.is_best():
            self._checkpoints.save(step)

    def _is_due(self, every: int, step: int, metrics: Metrics | None = None) -> bool:
        """True if what is done ``every`` so many steps, and after the last, is done after
        ``step``; that may be the last by its ``metrics``, which are not on record yet."""
        row = None if metrics is None else {"step": step, **metrics}
        ends = self._stopping.reason(row) is not None
        return is_due(step, every=every, num_steps=step if ends else self._bar.total)

    def _report(self, step: int, metrics: Metrics) -> None:
        """Write a step's metrics, and show the most telling."""
        self._stopping.see(self._run.log_metrics(step, metrics))
        for line in step_lines(step, self._bar.total, metrics):
            log.info(line)
        self._bar.update(step - self._bar.n)


def is_due(step: int, *, every: int, num_steps: int) -> bool:
    """True if what is done ``every`` so many steps, and after the last, is done after ``step``.

    Step 0 stands for the start, where a checkpoint would hold nothing new: callers skip it.
    """
    return step % every == 0 or step == num_steps
