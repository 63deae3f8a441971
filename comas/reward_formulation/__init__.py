"""Reward formulation: every turn of a discussion gets its reward. A new scheme is one file and
one line here."""

from functools import partial

from comas.reward_formulation.controls import (
    as_if_scored,
    flipped_reward,
    shuffled_reward,
    verifier_reward,
)
from comas.reward_formulation.interaction_reward import interaction_reward
from comas.reward_formulation.judgment_reward import judgment_reward
from comas.reward_formulation.majority_reward import majority_reward
from comas.reward_formulation.maporl_reward import (
    Shaping,
    maporl_reward,
    margin,
    outcome,
    plain,
    quality,
)
from comas.reward_formulation.scheme import RewardScheme
from comas.reward_formulation.self_rewarding import mean_rating, mean_score


def _maporl(shaping: Shaping) -> RewardScheme:
    return RewardScheme(partial(maporl_reward, shaping=shaping), needs=("verdicts",))


REWARD_SCHEMES: dict[str, RewardScheme] = {
    "interaction": RewardScheme(interaction_reward, reads="scores"),
    "judgment": RewardScheme(judgment_reward, reads="judgments"),
    "flipped": RewardScheme(flipped_reward, reads="scores"),
    "shuffled": RewardScheme(shuffled_reward, reads="scores", needs=("rng",)),
    "constant": RewardScheme(partial(as_if_scored, score=2), reads="scores"),
    "approving": RewardScheme(partial(as_if_scored, score=3), reads="scores"),
    "verifier": RewardScheme(verifier_reward, reads="scores", needs=("verdicts",)),
    "maporl": _maporl(plain),
    "maporl_quality": _maporl(quality),
    "maporl_margin": _maporl(margin),
    "maporl_outcome": _maporl(outcome),
    "mean_rating": RewardScheme(mean_rating, reads="ratings"),
    "mean_score": RewardScheme(mean_score, reads="scores"),
    "majority": RewardScheme(majority_reward),
}
