"""Refill: a step goes on asking until a batch of questions teaches something.

A question whose responses are all rewarded alike has no advantage within its group: under GRPO its
samples teach nothing, and a batch of few others has a noisy gradient. Source: dynamic sampling of
DAPO (arXiv 2503.14476, section 3.2). Found: nothing yet, it ran for three steps. Another reward
is refilled by a file that says of it what this one says of the paper's.
"""

from collections.abc import Sequence

from comas.reward_formulation import RewardScheme
from comas.reward_formulation.curriculum import Curriculum
from comas.reward_formulation.interaction_reward import interaction_reward
from comas.types import RewardedDiscussion

MAX_DRAWS = 3
"""Batches of questions that a step discusses at most."""


def rewards_differ(items: Sequence[RewardedDiscussion]) -> bool:
    """Return whether an agent's rewards in one role differ, in discussions of one question.

    Example: two copies in which agent 0 solves, paid 1 and 1, and agent 1 evaluates, paid 0 and
    0.5: they do. A truncated response counts as well, though ``algorithm.mask_truncated`` may leave
    it out.
    """
    paid: dict[tuple[int, str], set[float]] = {}
    for item in items:
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True):
            if reward is not None:
                paid.setdefault((turn.agent_index, turn.role), set()).add(reward)
    return any(len(rewards) > 1 for rewards in paid.values())


refilled = RewardScheme(
    interaction_reward,
    reads="scores",
    curriculum=Curriculum(teaches=rewards_differ, max_draws=MAX_DRAWS),
)
