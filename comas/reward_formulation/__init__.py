"""Reward formulation: every turn of a discussion gets its reward. A new scheme is one file and
one line here."""

from comas.reward_formulation.interaction_reward import interaction_reward
from comas.reward_formulation.judgment_reward import judgment_reward
from comas.reward_formulation.scheme import RewardScheme

REWARD_SCHEMES: dict[str, RewardScheme] = {
    "interaction": RewardScheme(interaction_reward, reads="scores"),
    "judgment": RewardScheme(judgment_reward, reads="judgments"),
}
