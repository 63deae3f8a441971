"""Distillation: the agent with the best-rewarded solutions teaches the others on their own samples.

Source: the reverse KL of a student's samples to its teacher (GKD, arXiv 2306.13649). The teacher is
chosen anew in each step and learns by the paper's rewards. Not studied yet; it ran for three steps.
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
    """Reward each response of a student, in any role, with the sum over its tokens o_t of::

        log pi_teacher(o_t) - log pi_student(o_t)

    Its mean over samples is -KL(student, teacher), and its policy gradient is the gradient of that.
    A student that shares no prompt with the teacher is not trained in the step.

    ``distillation/teacher`` is the teacher's index, ``distillation/kl`` the KL in nats per token.
    Raises ValueError if student and teacher tokenize a prompt differently.

    Example: two tokens with log-probs -1 and -2 under the student, -0.5 and -1 under the teacher,
    give 1.5.
    """
    base = interaction_reward(discussions)
    prompts: dict[int, dict[str, Sequence[int]]] = {}
    for turn in (turn for d in discussions for turn in d.turns if not turn.is_given):
        prompts.setdefault(turn.agent_index, {})[turn.prompt] = turn.generation.prompt_token_ids
    said = collect_samples(
        base.discussions, policy_of_agent=range(max(prompts) + 1), mask_truncated=False
    )
    solved: list[list[float]] = [[] for _ in said]
    for item in base.discussions:
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True):
            if reward is not None and turn in item.discussion.solutions():
                solved[turn.agent_index].append(reward)
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
    """Return the sum of (teacher's - student's log-prob) over each turn's tokens, and the KL in
    nats per token."""
    paid = {
        (sample.discussion_id, sample.turn_id): math.fsum(theirs) - math.fsum(present)
        for sample, theirs, present in zip(samples, taught, its, strict=True)
    }
    num_tokens = sum(sum(s.sampled or [True] * len(s.response_token_ids)) for s in samples)
    return paid, -math.fsum(paid.values()) / num_tokens if num_tokens else None


def _read_alike(
    prompts: Mapping[int, Mapping[str, Sequence[int]]], student: int, teacher: int
) -> bool:
    """Return whether both had a common prompt. Raises ValueError if its token ids differ."""
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
