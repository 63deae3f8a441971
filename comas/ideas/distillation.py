"""Distillation: the agent whose solutions are paid best teaches the others on what they say.

Source: a student's own samples under the reverse KL to its teacher (GKD, arXiv 2306.13649). The
teacher, chosen anew in each step, learns by the paper's rewards. Found: nothing yet, it ran for
three steps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from comas.policy_optimization.samples import collect_samples
from comas.reward_formulation import ResponseLogprobs, RewardScheme
from comas.reward_formulation.interaction_reward import interaction_reward
from comas.types import Discussion, Metrics, RewardedDiscussion, Rewards, TrainingSample, TurnKey


def distillation_reward(
    discussions: Sequence[Discussion], *, response_logprobs: ResponseLogprobs
) -> Rewards:
    """Pay whatever a student says, in any role, the sum over its tokens o_t of::

        log pi_teacher(o_t) - log pi_student(o_t)

    whose mean over samples is -KL(student, teacher), and whose policy gradient is that of it. An
    agent that was asked nothing that its teacher was asked as well is not trained in the step.

    ``distillation/teacher`` is the teacher's index, ``distillation/kl`` the KL in nats per token.
    Raises ValueError where a prompt has other token ids for a student than for its teacher.

    Example: a response of two tokens of log-probs -1 and -2 under the student's policy, and -0.5
    and -1 under the teacher's: 1.5.
    """
    base = interaction_reward(discussions)
    prompts: dict[int, dict[str, Sequence[int]]] = {}
    for turn in (turn for d in discussions for turn in d.turns if not turn.is_given):
        prompts.setdefault(turn.agent_index, {})[turn.prompt] = turn.generation.prompt_token_ids
    said = collect_samples(
        base.discussions, policy_of_agent=range(max(prompts) + 1), mask_truncated=False
    )
    solved = [[s.reward for s in samples if s.role == "solution"] for samples in said]
    teacher = max(prompts, key=lambda agent: fmean(solved[agent] or [-math.inf]))
    students = [a for a in prompts if a != teacher and _read_alike(prompts, a, teacher)]
    samples = [sample for student in students for sample in said[student]]
    taught = response_logprobs([replace(sample, agent_index=teacher) for sample in samples])
    paid, kl = paid_by_likelihood(samples, taught, response_logprobs(samples))

    def pay(item: RewardedDiscussion) -> RewardedDiscussion:
        name = item.discussion.discussion_id
        rewards = tuple(
            reward if turn.agent_index == teacher else paid.get((name, turn.turn_id))
            for turn, reward in zip(item.discussion.turns, item.rewards, strict=True)
        )
        return replace(item, rewards=rewards)

    told: Metrics = {"distillation/teacher": teacher, "distillation/kl": kl}
    return Rewards([pay(item) for item in base.discussions], base.metrics | told)


def paid_by_likelihood(
    samples: Sequence[TrainingSample],
    taught: Sequence[Sequence[float]],
    its: Sequence[Sequence[float]],
) -> tuple[dict[TurnKey, float], float | None]:
    """By turn the sum over its tokens of what a teacher's log-probs are above the student's; and
    the KL in nats per token."""
    paid = {
        (sample.discussion_id, sample.turn_id): math.fsum(theirs) - math.fsum(present)
        for sample, theirs, present in zip(samples, taught, its, strict=True)
    }
    num_tokens = sum(sum(s.sampled or [True] * len(s.response_token_ids)) for s in samples)
    return paid, -math.fsum(paid.values()) / num_tokens if num_tokens else None


def _read_alike(
    prompts: Mapping[int, Mapping[str, Sequence[int]]], student: int, teacher: int
) -> bool:
    """Return whether both were asked something, and its token ids were the same."""
    its, theirs = prompts[student], prompts[teacher]
    common = its.keys() & theirs.keys()
    if any(tuple(theirs[prompt]) != tuple(its[prompt]) for prompt in common):
        raise ValueError(
            f"reward.scheme distils agent {teacher} into agent {student}, who have different "
            "tokenizers or chat templates; let society.models name models that share them"
        )
    return bool(common)


distilled = RewardScheme(
    distillation_reward, "scores", ("response_logprobs",), compares_policies=True, pays_some=True
)
