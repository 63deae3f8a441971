"""The sizes of a run: discussions, samples, optimiser steps."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from comas.config.schema import Config, Dpo
from comas.data import count_steps
from comas.interaction.schedules import run_discussions
from comas.policy_optimization.batching import num_optimizer_steps
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.prepared import Sizes
from comas.types import Discussion, Generation, Question, Request, Rewards
from comas.verification.solutions import Verdicts

MADE_UP = tuple(Question(str(number), "math", "What is 1 + 1?") for number in range(2))
READABLE = r"\boxed{1} <score>2</score> <judgment>correct</judgment> <rating>3</rating>"
"""A response that every reward scheme can read."""


def derive_sizes(config: Config, *, num_questions: int) -> Sizes:
    """Return the sizes of a run of ``num_questions`` training questions.

    Turns are counted in a discussion of silent agents, so that the schedule itself decides. Must
    not be called while an event loop runs. Raises DataError if the questions do not fill a batch.
    """
    num_steps = count_steps(
        num_questions,
        batch_size=config.rollout.batch_size,
        num_epochs=config.training.num_epochs,
        num_steps=config.training.num_steps,
    )
    num_discussions = config.rollout.batch_size * config.interaction.prompt_reuse
    said = silent_discussions(config)[0].turns
    turns = dict(Counter(turn.role for turn in said if not turn.is_given))
    num_turns = num_discussions * sum(turns.values())
    samples_per_agent = num_turns / config.society.num_agents
    if isinstance(config.algorithm, Dpo):
        samples_per_agent = 2 * config.rollout.batch_size  # one pair per question
    agents = Counter(config.policy_of_agent)
    samples = [round(samples_per_agent * agents[p]) for p in range(config.num_policies)]

    def optimizer_steps(num_samples: int) -> int:
        batch = config.optimization.train_batch_size
        return config.optimization.epochs_per_buffer * num_optimizer_steps(num_samples, batch)

    of_update, of_run = [], []
    for per_step, every in zip(samples, config.update_every, strict=True):
        whole = optimizer_steps(per_step * every)
        num_whole, rest = divmod(num_steps, every) if every else (0, 0)
        of_update.append(whole)
        of_run.append(num_whole * whole + optimizer_steps(per_step * rest))  # after the last, too
    return Sizes(
        num_questions=num_questions,
        num_steps=num_steps,
        num_discussions=num_discussions,
        turns_per_discussion=turns,
        num_turns=num_turns,
        samples_per_policy=tuple(samples),
        optimizer_steps_per_policy=tuple(of_update),
        num_optimizer_steps=tuple(of_run),
        num_validations=1 + math.ceil(num_steps / config.training.validate_every),
    )


def describe_sizes(config: Config, sizes: Sizes) -> list[str]:
    turns = sizes.turns_per_discussion
    size = config.optimization.train_batch_size
    batch = "the whole buffer" if size is None else f"{size} samples"
    rank, num_bases = config.policy.lora.rank, len(config.families)
    adapted = "" if rank is None else f", LoRA of rank {rank} over base models: {num_bases}"
    return [
        f"society: {config.society.num_agents} agents with {config.num_policies} policies{adapted}",
        f"a step: {config.rollout.batch_size} questions x {config.interaction.prompt_reuse} "
        f"copies = {sizes.num_discussions} discussions",
        f"a discussion: {', '.join(f'{num} {role}s' for role, num in turns.items())} "
        f"({'program' if config.interaction.program else config.interaction.schedule})",
        f"a policy: up to {_each(sizes.samples_per_policy)} samples per step; optimiser steps: "
        f"{_each(sizes.optimizer_steps_per_policy)} of {batch}, "
        f"{_each(sizes.num_optimizer_steps)} in the run",
        f"the run: {sizes.num_steps} steps over {sizes.num_questions} questions, and "
        f"{sizes.num_validations} validations",
    ]


def silent_discussions(
    config: Config, questions: Sequence[Question] = MADE_UP, *, said: str = ""
) -> list[Discussion]:
    """Return discussions of the questions in which every agent says ``said``, one of each question
    by a program. Must not be called while an event loop runs."""
    rules = config.interaction
    if rules.program is not None:
        rules, said = replace(rules, prompt_reuse=1), said or READABLE

    async def say(_: Request) -> Generation:
        return Generation((0,), (0,), said, (0.0,), "stop", 0)

    return run_discussions(
        questions,
        generate=say,
        num_agents=config.society.num_agents,
        rules=rules,
        seed=config.seed,
        step=0,
    )


def silent_rewards(config: Config, discussions: Sequence[Discussion]) -> Rewards:
    """Return the rewards of discussions in which every solution is unanswered."""
    unanswered: Verdicts = {
        (discussion.discussion_id, turn.turn_id): "unanswered"
        for discussion in discussions
        for turn in discussion.solutions()
    }
    pay = REWARD_SCHEMES[config.reward.scheme]
    return pay(discussions, lambda: unanswered, seed=config.seed, step=0)


def _each(counts: tuple[int, ...]) -> str:
    """``(24, 24) -> "24"``, ``(24, 12) -> "24 / 12"``"""
    return " / ".join(map(str, counts if len(set(counts)) > 1 else counts[:1]))
