"""Distillation from ``society.judge``, which is not trained, into all agents.

Source: GKD (arXiv 2306.13649), as ``comas/ideas/distillation.py``. Not studied yet; it ran for
three steps.
"""

from collections.abc import Sequence

from comas.ideas.distillation import paid_by_likelihood
from comas.policy_optimization.samples import collect_samples
from comas.reward_formulation import JudgeLogprobs, ResponseLogprobs, RewardScheme, of_agents
from comas.types import Discussion, RewardedDiscussion, Rewards


def judge_distillation_reward(
    discussions: Sequence[Discussion],
    *,
    response_logprobs: ResponseLogprobs,
    judge_logprobs: JudgeLogprobs,
) -> Rewards:
    """Reward all responses as ``distillation_reward`` rewards those of students, with the judge as
    the teacher. The judge's log-probs are at temperature 1, so this is the KL only if
    ``rollout.temperature`` is 1 as well.

    Raises ValueError if the judge has another tokenizer, or its server gives no log-probs.
    """
    turns = {(d.discussion_id, turn.turn_id): turn for d in discussions for turn in d.turns}
    said = [of_agents(RewardedDiscussion(d, (0.0,) * len(d.turns))) for d in discussions]
    num_agents = 1 + max(turn.agent_index for turn in turns.values())
    [samples] = collect_samples(said, policy_of_agent=[0] * num_agents, mask_truncated=False)
    taught = judge_logprobs([turns[s.discussion_id, s.turn_id].generation for s in samples])
    paid, kl = paid_by_likelihood(samples, taught, response_logprobs(samples))
    rewarded = [
        RewardedDiscussion(d, tuple(paid.get((d.discussion_id, turn.turn_id)) for turn in d.turns))
        for d in discussions
    ]
    return Rewards(rewarded, {"distillation/kl": kl})


distilled_from_judge = RewardScheme(
    judge_distillation_reward, needs=("response_logprobs", "judge_logprobs")
)
