"""The driver: the one place where a whole step of CoMAS can be read.

Started by ``bash scripts/train_comas.sh`` through ``comas/__main__.py``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from comas.config.schema import Config
from comas.data import QuestionSet, draw_batch, fixed_subset
from comas.engines.cluster.agents import Agents
from comas.interaction import run_discussions
from comas.metrics import (
    Metrics,
    accuracy_metrics,
    rollout_metrics,
    solutions,
    step_line,
    update_metrics,
)
from comas.policy_optimization.samples import collect_samples
from comas.preflight.preparation import Prepared
from comas.reward_effectiveness import reward_effectiveness
from comas.reward_formulation import REWARD_SCHEMES
from comas.run_directory import RunDirectory
from comas.types import AnswerKey, Discussion, Turn, UpdateStats
from comas.validation import answer_alone
from comas.verification import Item, Verifier

log = logging.getLogger(__name__)


def train(config: Config, prepared: Prepared, run: RunDirectory) -> None:
    """Let the society co-evolve: discuss, reward, update, sync, step after step.

    Continues after the run directory's newest checkpoint, if it holds one.
    """
    data = prepared.train
    num_steps = prepared.sizes.num_steps
    if run.is_finished(num_steps):
        log.info("nothing to train: this run has made all of its %d steps", num_steps)
        return
    formulate_rewards = REWARD_SCHEMES[config.reward.scheme]
    with (
        Verifier() as verifier,
        Agents(config, models=prepared.models, device=prepared.device) as agents,
        tqdm(total=num_steps, unit="step", disable=None, dynamic_ncols=True) as bar,
        logging_redirect_tqdm(),
    ):
        validate = partial(_validate, config, agents, verifier, prepared.validation)
        last_step = _restore(run, agents, num_steps=num_steps)
        # Always, also after a resume: a fresh engine holds the base model's weights.
        agents.sync_weights()
        if last_step == 0:
            _report(run, bar, 0, validate())
        for step in range(last_step + 1, num_steps + 1):
            clock = Stopwatch()
            discussions = _discuss(config, agents, data, step, bar)
            clock.lap("rollout_s")
            # The verifier works beside the update: it measures, and is never a reward.
            answered = solutions(discussions)
            verification = verifier.submit(_items(answered, data.answers))
            rewarded = [formulate_rewards(discussion) for discussion in discussions]
            buffers = collect_samples(
                rewarded,
                policy_of_agent=config.policy_of_agent,
                mask_truncated=config.optimization.mask_truncated,
            )
            stats = agents.update(buffers, step=step)
            _warn_of_mismatch(stats, limit=config.optimization.mismatch_warning)
            clock.lap("update_s")
            agents.sync_weights()
            clock.lap("sync_s")
            verdicts = verification.result()
            turns = [(d.discussion_id, turn.turn_id) for d, turn in answered]
            verdict_of = dict(zip(turns, verdicts, strict=True))
            metrics = {
                **rollout_metrics(rewarded, num_agents=config.society.num_agents),
                **update_metrics(stats, policy_of_agent=config.policy_of_agent),
                **accuracy_metrics("train", [d.question for d, _ in answered], verdicts),
                **reward_effectiveness(rewarded, verdicts=verdict_of),
                **clock.times(),
            }
            if is_due(step, every=config.training.validate_every, num_steps=num_steps):
                metrics |= validate()
            run.save_discussions(step, rewarded, verdicts=verdict_of)
            _report(run, bar, step, metrics)
            if is_due(step, every=config.training.save_every, num_steps=num_steps):
                with run.checkpoint_folder(step) as folder:
                    agents.save_checkpoint(folder)
        with run.models_folder(num_steps) as folder:
            agents.save_models(folder)


def is_due(step: int, *, every: int, num_steps: int) -> bool:
    """Whether what is done ``every`` so many steps, and after the last, is done after ``step``.

    Step 0 stands for the start, where a checkpoint would hold nothing new: callers skip it.
    """
    return step % every == 0 or step == num_steps


class Stopwatch:
    """Seconds of a step, phase by phase."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()
        self._times: Metrics = {}

    def lap(self, name: str) -> None:
        """End the phase ``name``, which began when the one before ended."""
        now = time.monotonic()
        self._times[f"time/{name}"] = now - self._last
        self._last = now

    def times(self) -> Metrics:
        """The phases so far, and the whole as ``time/step_s``."""
        return {**self._times, "time/step_s": time.monotonic() - self._start}


def _discuss(
    config: Config, agents: Agents, data: QuestionSet, step: int, bar: tqdm
) -> list[Discussion]:
    """The discussions of a step's batch, all at once; the bar shows how many have ended."""
    questions = draw_batch(
        data.questions,
        step=step - 1,
        batch_size=config.rollout.batch_size,
        seed=config.seed,
        shuffle=config.data.shuffle,
    )
    discussions = asyncio.run(
        run_discussions(
            questions,
            generate=agents.generate,
            num_agents=config.society.num_agents,
            rules=config.interaction,
            seed=config.seed,
            step=step,
            on_finished=_count_on(bar, len(questions) * config.interaction.prompt_reuse),
        )
    )
    bar.set_postfix_str("update")
    return discussions


def _restore(run: RunDirectory, agents: Agents, *, num_steps: int) -> int:
    """Load the newest checkpoint and forget what came after it; 0 when there is none."""
    checkpoint = run.latest_checkpoint()
    if checkpoint is None:
        run.drop_after(-1)
        return 0
    step, folder = checkpoint
    agents.load_checkpoint(folder, step=step)
    run.drop_after(step)
    log.info("continuing after step %d of %d", step, num_steps)
    return step


def _validate(config: Config, agents: Agents, verifier: Verifier, held_out: QuestionSet) -> Metrics:
    """Held-out accuracy of the agents, each answering alone: their mean, and each one's."""
    started = time.monotonic()
    questions = fixed_subset(held_out.questions, config.validation.num_questions)
    num_agents = config.society.num_agents
    answers = asyncio.run(
        answer_alone(
            questions,
            generate=partial(agents.generate, temperature=config.validation.temperature),
            num_agents=num_agents,
            seed=config.seed,
        )
    )
    verdicts = verifier.submit(
        (question.task, answer, held_out.answers[question.question_id])
        for of_agent in answers
        for question, answer in zip(questions, of_agent, strict=True)
    ).result()
    metrics = accuracy_metrics("validation", questions * num_agents, verdicts)
    for agent in range(num_agents):
        own = verdicts[agent * len(questions) : (agent + 1) * len(questions)]
        share = accuracy_metrics("", questions, own)["/accuracy"]
        metrics[f"agent_{agent}/validation/accuracy"] = share
    metrics["time/validation_s"] = time.monotonic() - started
    return metrics


def _warn_of_mismatch(stats: Sequence[UpdateStats], *, limit: float) -> None:
    """A policy and its rollout engine that disagree make every importance ratio wrong."""
    for policy, of_policy in enumerate(stats):
        if of_policy.mismatch_mean > limit:
            log.warning(
                "policy %d: its log-probs differ from its rollout engine's by %.3f a token "
                "(optimization.mismatch_warning=%g)",
                policy,
                of_policy.mismatch_mean,
                limit,
            )


def _report(run: RunDirectory, bar: tqdm, step: int, metrics: Metrics) -> None:
    """Write a step's metrics, and show them as one line."""
    run.log_metrics(step, metrics)
    log.info(step_line(step, bar.total, metrics))
    bar.set_postfix_str("")
    bar.update(step - bar.n)


def _items(answered: Sequence[tuple[Discussion, Turn]], answers: AnswerKey) -> Iterator[Item]:
    """What the verifier is asked of each solution."""
    for discussion, turn in answered:
        question = discussion.question
        yield question.task, turn.generation.response_text, answers[question.question_id]


def _count_on(bar: tqdm, total: int) -> Callable[[], None]:
    """Show on the bar how many of a step's discussions have ended."""
    finished = 0

    def count() -> None:
        nonlocal finished
        finished += 1
        bar.set_postfix_str(f"{finished}/{total} discussions")

    return count
