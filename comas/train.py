"""The driver: the one place where a whole step of CoMAS can be read.

Started by ``bash scripts/train_comas.sh`` through ``comas/__main__.py``.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from comas.config.schema import Config
from comas.data import draw_batch
from comas.engines.cluster.agents import Agents
from comas.engines.cluster.recoveries import Recoveries
from comas.engines.cluster.supervision import LostEngineError
from comas.interaction import run_discussions
from comas.policy_optimization.samples import Buffers, collect_samples
from comas.reward_formulation import REWARD_SCHEMES, offer_evidence
from comas.run import RunDirectory
from comas.run.ahead import Batch, Ready, Rollouts, read_ahead
from comas.run.bookkeeping import Bookkeeping, StepOutcome
from comas.run.directory import BEFORE_ALL, BEST, MODELS
from comas.run.metrics.step import Stopwatch
from comas.run.model_cards import write_model_cards
from comas.run.prepared import Prepared
from comas.run.records import METRICS, read_rows
from comas.run.validation import validate_agents
from comas.types import Discussion, Rewards
from comas.utils.progress import counted, progress_bar
from comas.verification import Verifier
from comas.verification.solutions import Verdicts, verify_solutions

log = logging.getLogger(__name__)


def train(config: Config, prepared: Prepared, run: RunDirectory) -> None:
    """Let the society co-evolve until the run has made all of its steps, or ends early.

    Goes on after the run directory's newest checkpoint, if it holds one, and does so again when
    an engine is lost that cannot be started again alone.

    Raises:
        EngineError: engines failed, did not start, or were lost too often.
    """
    num_steps = prepared.sizes.num_steps
    if (finished := run.why_finished(num_steps)) is not None:
        log.info("nothing to train: %s", finished)
        return
    run.note_num_steps(num_steps)
    recoveries = Recoveries(config.cluster.max_recoveries)
    has_started = False
    with (
        Verifier(isolation=prepared.isolation, chosen=config.verifiers) as verifier,
        tqdm(total=num_steps, unit="step", disable=None, dynamic_ncols=True) as bar,
        logging_redirect_tqdm(),
    ):
        while True:
            checkpoint = run.latest_checkpoint()
            try:
                with agents_of(config, prepared, recoveries) as agents:
                    has_started = True
                    last_step, ready = _restore(run, prepared, agents, checkpoint)
                    rollouts = rollouts_of(
                        config, prepared, agents, verifier, after=last_step, ready=ready
                    )
                    co_evolve(
                        config, prepared, run, agents, verifier, rollouts, bar, after=last_step
                    )
                return
            except LostEngineError as error:
                if not has_started:
                    raise  # It would not start the second time, either.
                recoveries.count("society", error)
                log.warning("%s", error)
                log.warning("the society is started again from its newest checkpoint")


def co_evolve(
    config: Config,
    prepared: Prepared,
    run: RunDirectory,
    agents: Agents,
    verifier: Verifier,
    rollouts: Rollouts,
    bar: tqdm,
    *,
    after: int,
) -> None:
    """Discuss, reward, update and sync in all steps beyond ``after``, and save the models."""
    num_steps = prepared.sizes.num_steps
    # Empty after every step that has a checkpoint (see the checks of society.update_every), so
    # a resumed run misses nothing.
    buffers = Buffers(config.update_every)
    with bookkeeping_of(config, prepared, run, agents, verifier, rollouts, bar) as books:
        # Always, also after a resume: a fresh engine holds the base model's weights.
        agents.sync_weights()
        step = after
        if step == 0:
            books.begin()
        while step < num_steps and books.reason_to_end() is None:
            step += 1
            clock = Stopwatch()
            batch, staleness = rollouts.take(step)
            clock.lap("rollout_s")
            buffers.add(
                collect_samples(
                    batch.rewards.discussions,
                    policy_of_agent=config.policy_of_agent,
                    mask_truncated=config.algorithm.mask_truncated,
                )
            )
            due = buffers.take_due(step, num_steps=num_steps)
            updated = agents.begin_update(due, step=step)
            clock.lap("update_s")
            rollouts.go_ahead(step)  # Only with a training.max_staleness above 0.
            clock.lap("rollout_s")
            stats = updated()
            clock.lap("update_s")
            agents.sync_weights(stats)
            clock.lap("sync_s")
            books.enter(StepOutcome(step, batch, staleness, due, stats, clock))
        if step < num_steps:
            log.warning("ended after step %d of %d: %s", step, num_steps, books.reason_to_end())
        save_models(prepared, run, agents, step=step)


def agents_of(config: Config, prepared: Prepared, recoveries: Recoveries) -> Agents:
    """The society of a run, which starts its engines as its context is entered."""
    return Agents(
        config,
        models=prepared.models,
        device=prepared.device,
        num_optimizer_steps=prepared.sizes.num_optimizer_steps,
        recoveries=recoveries,
    )


def rollouts_of(
    config: Config,
    prepared: Prepared,
    agents: Agents,
    verifier: Verifier,
    *,
    after: int,
    ready: Sequence[Ready] = (),
) -> Rollouts:
    """The batches of a run after the step ``after``, whose checkpoint held those that are
    ``ready``."""
    answers = prepared.train.answers

    def sample(step: int) -> Batch:
        discussions = discuss(config, agents, prepared, step=step)
        # The verifier works beside the update: it measures, and no CoMAS reward asks for it.
        verdicts = verify_solutions(verifier, discussions, answers=answers)
        return Batch(formulate_rewards(config, discussions, verdicts, step=step), verdicts)

    def judge(rewards: Rewards) -> Batch:
        discussions = [item.discussion for item in rewards.discussions]
        return Batch(rewards, verify_solutions(verifier, discussions, answers=answers))

    return Rollouts(
        sample,
        judge,
        lead=config.training.max_staleness,
        num_steps=prepared.sizes.num_steps,
        after=after,
        ready=ready,
    )


def bookkeeping_of(
    config: Config,
    prepared: Prepared,
    run: RunDirectory,
    agents: Agents,
    verifier: Verifier,
    rollouts: Rollouts,
    bar: tqdm,
) -> Bookkeeping:
    """The bookkeeping of a run whose steps ``agents`` make."""

    def begin_checkpoint(folder: Path) -> list[Future[None]]:
        rollouts.save(folder)
        return agents.save_checkpoint(folder)

    validate = partial(
        validate_agents,
        prepared.validation,
        prepared.probe,
        config,
        generate=agents.generate,
        verifier=verifier,
    )
    return Bookkeeping(
        config,
        run,
        bar,
        validate=validate,
        begin_checkpoint=begin_checkpoint,
        take_recoveries=agents.recoveries.take_metrics,
        answers=prepared.train.answers,
    )


def discuss(config: Config, agents: Agents, prepared: Prepared, *, step: int) -> list[Discussion]:
    """The discussions of a step's batch, all at once."""
    questions = draw_batch(
        prepared.train.questions,
        step=step - 1,
        batch_size=config.rollout.batch_size,
        seed=config.seed,
    )
    num_turns = prepared.sizes.num_turns
    with progress_bar(f"step {step}, rollout", unit="turn", total=num_turns) as bar:
        return asyncio.run(
            run_discussions(
                questions,
                generate=counted(agents.generate, bar),
                num_agents=config.society.num_agents,
                rules=config.interaction,
                seed=config.seed,
                step=step,
            )
        )


def formulate_rewards(
    config: Config,
    discussions: Sequence[Discussion],
    wait_for_verdicts: Callable[[], Verdicts],
    *,
    step: int,
) -> Rewards:
    """What ``reward.scheme`` pays."""
    evidence = offer_evidence(wait_for_verdicts, seed=config.seed, step=step)
    return REWARD_SCHEMES[config.reward.scheme](discussions, evidence=evidence)


def _restore(
    run: RunDirectory, prepared: Prepared, agents: Agents, checkpoint: tuple[int, Path] | None
) -> tuple[int, list[Ready]]:
    """Load ``checkpoint``, and put aside what came after it; returns its step (0 when there is
    none) and the batches that had been sampled for later ones."""
    if checkpoint is not None:
        step, folder = checkpoint
        agents.load_checkpoint(folder, step=step)
    run.keep_settings(prepared.locations, prepared.sources)
    if checkpoint is None:
        run.go_back_to(BEFORE_ALL)
        return 0, []
    run.go_back_to(step)
    log.info("continuing after step %d of %d", step, prepared.sizes.num_steps)
    return step, read_ahead(folder)


def export_best(config: Config, prepared: Prepared, run: RunDirectory) -> Path:
    """Write the models of the best checkpoint into ``best/``, beside those of the newest; returns
    that folder.

    Raises:
        ValueError: there is no such checkpoint.
        EngineError: engines failed.
    """
    step, checkpoint = run.best_checkpoint()
    with agents_of(config, prepared, Recoveries(0)) as agents:
        agents.load_checkpoint(checkpoint, step=step)
        save_models(prepared, run, agents, step=step, name=BEST)
    return run.path / BEST


def save_models(
    prepared: Prepared, run: RunDirectory, agents: Agents, *, step: int, name: str = MODELS
) -> None:
    """Write every agent's model after ``step``, with a card that says how it came about."""
    with run.models_folder(step, name=name) as folder:
        agents.save_models(folder)
        rows = [row for row in read_rows(run.path / METRICS) if row["step"] <= step]
        write_model_cards(folder, prepared, rows=rows, num_steps=step)
