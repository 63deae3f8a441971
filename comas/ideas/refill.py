"""Refill: a step asks further questions until a whole batch teaches something.

If all responses to a question get the same reward, their advantages in a group are 0: under GRPO
they teach nothing, and leave fewer samples for the gradient. Source: dynamic sampling of DAPO
(arXiv 2503.14476, section 3.2). Not studied yet; it ran for three steps. Other rewards can have the
same ``Curriculum``.
"""

from collections.abc import Sequence

from comas.reward_formulation import RewardScheme
from comas.reward_formulation.curriculum import Curriculum
from comas.reward_formulation.interaction_reward import interaction_reward
from comas.types import RewardedDiscussion

MAX_DRAWS = 3
"""Maximum number of batches that a step discusses."""


def rewards_differ(items: Sequence[RewardedDiscussion]) -> bool:
    """Return whether an agent's rewards in one role differ within the discussions of a question.
    Truncated responses count, even if ``algorithm.mask_truncated`` excludes them from training.

    Example: in two copies, agent 0 gets 1 and 1 for solving, and agent 1 gets 0 and 0.5 for
    evaluating: they differ.
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
