"""Reward formulation: every turn of a discussion gets its reward. A new scheme is one file and
one line here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Literal

from comas.config.plugins import LAST_SHIPPED, Registry, check_call
from comas.interaction.criticism import Outcome
from comas.reward_formulation.consistency_reward import consistency_reward
from comas.reward_formulation.controls import (
    as_if_scored,
    flipped_reward,
    shuffled_reward,
    verifier_reward,
)
from comas.reward_formulation.interaction_reward import interaction_reward
from comas.reward_formulation.judgment_reward import judgment_reward
from comas.reward_formulation.majority_reward import confidence, majority_reward
from comas.reward_formulation.maporl_reward import (
    Shaping,
    maporl_reward,
    margin,
    outcome,
    plain,
    quality,
)
from comas.reward_formulation.pairwise_reward import pairwise_reward
from comas.reward_formulation.scored_majority import scored_majority_reward
from comas.reward_formulation.self_rewarding import mean_rating
from comas.types import Discussion, Rewards
from comas.verification.solutions import Verdicts

Evidence = Literal["verdicts", "rng"]
"""What a scheme may need beside the discussions.

``verdicts``: turn -> what the verifier says of it (``Verdicts``); a scheme that needs them is
not CoMAS's, whose rewards come from the discussion alone. ``rng``: the step's own generator
(``Random``). Both are arguments of these names.
"""


def offer_evidence(
    wait_for_verdicts: Callable[[], Verdicts], *, seed: int, step: int
) -> dict[Evidence, Callable[[], Any]]:
    """What a scheme may choose from at ``step``; nothing is computed before it is needed."""
    return {"verdicts": wait_for_verdicts, "rng": lambda: Random(f"{seed}/{step}/rewards")}


@dataclass(frozen=True)
class RewardScheme:
    """A function from a step's discussions to rewards, and what it has to be given.

    ``formulate(discussions, **evidence)`` is called with the whole batch, so a scheme may compare
    the discussions of one question; ``evidence`` holds what ``needs`` names and nothing else.

    Example: ``RewardScheme(agreement_with_gold, needs=("verdicts",))`` has
    ``agreement_with_gold(discussions, verdicts=...)`` called.
    """

    formulate: Callable[..., Rewards]
    reads: Outcome | None = None
    """What it reads in the discussions; the criticism has to make it."""
    needs: tuple[Evidence, ...] = ()
    pays_alike: bool = False
    """Whether all responses of a role have the same reward on purpose, as in a control."""

    @property
    def sees_verdicts(self) -> bool:
        """Whether its rewards are made of what the verifier says."""
        return "verdicts" in self.needs

    def __call__(
        self, discussions: Sequence[Discussion], *, evidence: dict[Evidence, Callable[[], Any]]
    ) -> Rewards:
        """Reward a batch; of ``evidence`` only what is needed is computed and handed over."""
        given = {need: evidence[need]() for need in self.needs}
        rewards: Any = self.formulate(discussions, **given)
        if not isinstance(rewards, Rewards) or len(rewards.discussions) != len(discussions):
            raise ValueError(
                f"reward.scheme: for {len(discussions)} discussions it returned "
                f"{type(rewards).__name__}; let it return Rewards with a RewardedDiscussion for "
                "each"
            )
        return rewards


def _maporl(shaping: Shaping) -> RewardScheme:
    return RewardScheme(partial(maporl_reward, shaping=shaping), needs=("verdicts",))


def _as_scheme(found: Any) -> RewardScheme | None:
    """A bare function needs nothing but the discussions."""
    if isinstance(found, RewardScheme):
        check_call(found.formulate, "discussions", named=found.needs)
        return found
    return _as_scheme(RewardScheme(found)) if callable(found) else None


_SHIPPED = {
    "interaction": RewardScheme(interaction_reward, reads="scores"),
    "consistency": RewardScheme(consistency_reward, reads="scores"),
    "pairwise": RewardScheme(pairwise_reward, reads="scores"),
    "judgment": RewardScheme(judgment_reward, reads="judgments"),
    "flipped": RewardScheme(flipped_reward, reads="scores"),
    "shuffled": RewardScheme(shuffled_reward, reads="scores", needs=("rng",)),
    "constant": RewardScheme(partial(as_if_scored, score=2), reads="scores", pays_alike=True),
    "approving": RewardScheme(partial(as_if_scored, score=3), reads="scores", pays_alike=True),
    "verifier": RewardScheme(verifier_reward, reads="scores", needs=("verdicts",)),
    "maporl": _maporl(plain),
    "maporl_quality": _maporl(quality),
    "maporl_margin": _maporl(margin),
    "maporl_outcome": _maporl(outcome),
    "mean_rating": RewardScheme(mean_rating, reads="ratings"),
    "majority": RewardScheme(majority_reward),
    "confident_majority": RewardScheme(partial(majority_reward, weigh=confidence)),
    "scored_majority": RewardScheme(scored_majority_reward, reads="scores"),
}
REWARD_SCHEMES: Registry[RewardScheme] = Registry(
    _SHIPPED,
    group="comas.rewards",
    wanted="a function from discussions to Rewards, or a RewardScheme",
    adapt=_as_scheme,
    gone=dict.fromkeys(
        ("median", "peer_prediction", "executable", "frontier", "improvement"), LAST_SHIPPED
    ),
)
"""Reward schemes, by the name that ``reward.scheme`` gives them."""
