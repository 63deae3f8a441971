"""Reward schemes: functions from discussions to the reward of each turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from comas.config.plugins import Registry, check_call
from comas.interaction.criticism import Outcome
from comas.reward_formulation.checks import checked
from comas.reward_formulation.controls import (
    as_if_scored,
    flipped_reward,
    shuffled_reward,
    verifier_climbing_reward,
    verifier_reward,
)
from comas.reward_formulation.foreign import Formulate, by_trl, by_verl
from comas.reward_formulation.interaction_reward import interaction_reward
from comas.reward_formulation.judgment_reward import judgment_reward
from comas.reward_formulation.majority_reward import majority_reward
from comas.reward_formulation.maporl_reward import maporl_reward
from comas.reward_formulation.program_reward import program_reward
from comas.reward_formulation.self_rewarding import mean_rating
from comas.types import Discussion, Rewards
from comas.verification.solutions import Verdicts


@dataclass(frozen=True)
class RewardScheme:
    """A function from a step's discussions to rewards, and its properties.

    ``formulate(discussions, **needed)`` receives the whole batch, so that it can compare the
    discussions of a question, and what ``needs`` names: ``verdicts``, the verifier's, which no
    CoMAS reward needs; ``rng``, a ``Random`` seeded by the step.
    """

    formulate: Callable[..., Rewards]
    reads: Outcome | None = None
    """What it reads in the discussions, as the ``outcome`` of their criticism."""
    needs: tuple[str, ...] = ()
    pays_alike: bool = False
    """True if all turns of a role intentionally get the same reward, as in some controls."""
    pays_some: bool = False
    """True if it intentionally leaves turns without a reward, such as all but solutions."""
    reads_columns: bool = False
    """True if it reads ``Question.columns``, which include labels."""

    @property
    def sees_verdicts(self) -> bool:
        """True if its rewards depend on verdicts or labels."""
        return self.reads_columns or "verdicts" in self.needs

    def __call__(
        self,
        discussions: Sequence[Discussion],
        wait_for_verdicts: Callable[[], Verdicts],
        *,
        seed: int,
        step: int,
    ) -> Rewards:
        """Reward the batch of a step (0: a validation); waits for verdicts only if needed."""
        rng = partial(Random, f"{seed}/{step}/rewards")
        offered: dict[str, Callable[[], Any]] = {"verdicts": wait_for_verdicts, "rng": rng}
        given = {name: offered[name]() for name in self.needs}
        return checked(self.formulate(list(discussions), **given), discussions)


def _as_scheme(found: Any) -> RewardScheme | None:
    """Make a scheme of a plug-in; a bare function only receives the discussions."""
    if not callable(found):
        return None
    if not isinstance(found, RewardScheme):
        found = RewardScheme(found)
    if unknown := set(found.needs) - {"verdicts", "rng"}:
        raise TypeError(f"needs is {found.needs}, and {unknown} is neither verdicts nor rng")
    check_call(found.formulate, "discussions", named=found.needs)
    return found


def _foreign(adapt: Callable[[Any], Formulate], found: Any) -> RewardScheme:
    return RewardScheme(adapt(found), pays_some=True, reads_columns=True)


_by_verdicts = partial(RewardScheme, needs=("verdicts",), pays_some=True)
_by_scores = partial(RewardScheme, reads="scores")

REWARD_SCHEMES: Registry[RewardScheme] = Registry(
    {
        "interaction": _by_scores(interaction_reward),
        "judgment": RewardScheme(judgment_reward, reads="judgments"),
        "flipped": _by_scores(flipped_reward),
        "shuffled": _by_scores(shuffled_reward, needs=("rng",)),
        "constant": _by_scores(partial(as_if_scored, score=2), pays_alike=True),
        "approving": _by_scores(partial(as_if_scored, score=3), pays_alike=True),
        "verifier": _by_scores(verifier_reward, needs=("verdicts",), pays_some=True),
        "verifier_climbing": _by_scores(verifier_climbing_reward, needs=("verdicts",)),
        "maporl": _by_verdicts(maporl_reward),
        "maporl_quality": _by_verdicts(partial(maporl_reward, alpha=0.5)),
        "mean_rating": RewardScheme(mean_rating, reads="ratings", pays_some=True),
        "majority": RewardScheme(majority_reward, pays_some=True),
        "program": RewardScheme(program_reward, pays_some=True),
    },
    group="comas.rewards",
    wanted="a function from discussions to Rewards, or a RewardScheme",
    adapt=_as_scheme,
    prefixes={"trl": partial(_foreign, by_trl), "verl": partial(_foreign, by_verl)},
)
"""Reward schemes by name; to add one, write a file and a line here."""
