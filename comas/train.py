"""The driver of training, with the whole of a CoMAS step in ``co_evolve``."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from comas.data import draw_batch
from comas.engines.cluster.agents import Agents
from comas.engines.cluster.supervision import MAX_RECOVERIES, LostEngineError
from comas.interaction.schedules import run_discussions
from comas.policy_optimization.samples import Buffers, collect_samples
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.batches import Batches, WaitForVerdicts
from comas.run.bookkeeping import Bookkeeping
from comas.run.directory import BEFORE_ALL, RunDirectory
from comas.run.prepared import Prepared
from comas.types import Discussion, Question, Rewards
from comas.utils.progress import counted, progress_bar
from comas.verification import Verifier
from comas.verification.solutions import verify_solutions

log = logging.getLogger(__name__)


def train(prepared: Prepared, run: RunDirectory) -> None:
    """Train until the run has made all of its steps.

    Continues from the run's newest checkpoint, if any, and again after losing an engine. Raises
    EngineError when engines fail, do not start, or are lost too often.
    """
    num_steps = prepared.sizes.num_steps
    if run.is_finished(num_steps):
        log.info("nothing to train: this run has made all of its %d steps", num_steps)
        return
    run.note_num_steps(num_steps)
    lost_after: list[int] = []  # the last step before each loss
    has_started = False
    with (
        Verifier(isolation=prepared.isolation, chosen=prepared.config.verifiers) as verifier,
        tqdm(total=num_steps, unit="step", disable=None, dynamic_ncols=True) as bar,
        logging_redirect_tqdm(),
    ):
        while True:
            checkpoint = run.latest_checkpoint()
            try:
                with agents_of(prepared) as agents:
                    has_started = True
                    co_evolve(prepared, run, agents, verifier, bar, checkpoint)
                return
            except LostEngineError as error:
                if not has_started:
                    raise  # it would not start the second time, either
                lost_after.append(bar.n)
                before, since = lost_after[:-MAX_RECOVERIES], lost_after[-MAX_RECOVERIES:]
                if before and max(since) <= max(before):
                    said = f"it recovered {MAX_RECOVERIES} times without a new step in between"
                    raise LostEngineError(f"{error}\nThe run ends here: {said}") from error
                log.warning("%s\nthe society is started again from its newest checkpoint", error)


def agents_of(prepared: Prepared) -> Agents:
    """Return the society of a run; entering its context starts the engines."""
    return Agents(
        prepared.config,
        models=prepared.models,
        device=prepared.device,
        num_optimizer_steps=prepared.sizes.num_optimizer_steps,
    )


def co_evolve(
    prepared: Prepared,
    run: RunDirectory,
    agents: Agents,
    verifier: Verifier,
    bar: tqdm,
    checkpoint: tuple[int, Path] | None,
) -> None:
    """Discuss, reward, update and sync in every step after ``checkpoint`` (step, folder), and save
    the models."""
    config, num_steps = prepared.config, prepared.sizes.num_steps
    last_step = _restore(prepared, run, agents, checkpoint)
    pay = REWARD_SCHEMES[config.reward.scheme]
    start_verifying = partial(verify_solutions, verifier, answers=prepared.train.answers)

    def sample(step: int) -> tuple[Rewards, WaitForVerdicts]:
        discussions = discuss(prepared, agents, step=step)
        # The verifier runs during the update: it only measures, and no CoMAS reward needs it.
        wait_for_verdicts = start_verifying(discussions)
        return pay(discussions, wait_for_verdicts, seed=config.seed, step=step), wait_for_verdicts

    batches = Batches(
        sample,
        start_verifying,
        lead=config.training.max_staleness,
        num_steps=num_steps,
        made_with=prepared.made_with,
        checkpoint=checkpoint,
    )
    # Empty after a step with a checkpoint (conflicts.py checks that), so a resume misses nothing.
    buffers = Buffers(config.update_every)
    books = Bookkeeping(prepared, run, bar, agents=agents, verifier=verifier, batches=batches)
    # Also after a resume: new engines hold the base model's weights.
    agents.sync_weights()
    for step in books.steps(after=last_step):
        batch = batches.take(step)
        books.lap("rollout_s")
        buffers.add(
            collect_samples(
                batch.rewards.discussions,
                policy_of_agent=config.policy_of_agent,
                mask_truncated=config.algorithm.mask_truncated,
            )
        )
        due = buffers.take_due(step, num_steps=num_steps)
        wait_for_update = agents.begin_update(due, step=step)
        books.lap("update_s")
        batches.sample_ahead(step)
        books.lap("rollout_s")
        stats = wait_for_update()
        books.lap("update_s")
        agents.sync_weights(stats)
        books.lap("sync_s")
        books.enter(batch, due, stats)
    books.save_models()


def discuss(
    prepared: Prepared, agents: Agents, *, step: int, questions: Sequence[Question] = ()
) -> list[Discussion]:
    """Run the discussions of a step's batch, or of other ``questions``, concurrently."""
    config = prepared.config
    questions = questions or draw_batch(
        prepared.train.questions,
        step=step - 1,
        batch_size=config.rollout.batch_size,
        seed=config.seed,
    )
    with progress_bar(f"step {step}, rollout", unit="turn", total=prepared.sizes.num_turns) as bar:
        return run_discussions(
            questions,
            generate=counted(agents.generate, bar),
            num_agents=config.society.num_agents,
            rules=config.interaction,
            seed=config.seed,
            step=step,
        )


def _restore(
    prepared: Prepared, run: RunDirectory, agents: Agents, checkpoint: tuple[int, Path] | None
) -> int:
    """Load ``checkpoint``, move later outputs aside, and return its step; 0 without one."""
    if checkpoint is not None:
        step, folder = checkpoint
        agents.load_checkpoint(folder, step=step)
    run.keep_settings(prepared.locations, prepared.sources, prepared.contents)
    if checkpoint is None:
        run.go_back_to(BEFORE_ALL)
        return 0
    run.go_back_to(step)
    log.info("continuing after step %d of %d", step, prepared.sizes.num_steps)
    return step
