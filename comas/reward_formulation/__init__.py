"""Every turn of a discussion gets its reward. A new scheme is one file and one line here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from random import Random
from typing import Any

from comas.config.plugins import Registry, check_call
from comas.interaction.criticism import Outcome
from comas.reward_formulation.controls import (
    as_if_scored,
    flipped_reward,
    shuffled_reward,
    verifier_climbing_reward,
    verifier_reward,
)
from comas.reward_formulation.curriculum import Curriculum
from comas.reward_formulation.foreign import FOREIGN, ForeignReward
from comas.reward_formulation.interaction_reward import interaction_reward
from comas.reward_formulation.judgment_reward import judgment_reward
from comas.reward_formulation.majority_reward import majority_reward
from comas.reward_formulation.maporl_reward import maporl_reward, margin, outcome, plain, quality
from comas.reward_formulation.numbers import as_number
from comas.reward_formulation.self_rewarding import mean_rating
from comas.types import Discussion, Generation, RewardedDiscussion, Rewards, TrainingSample
from comas.verification.solutions import Verdicts

Evidence = Mapping[str, Callable[[], Any]]
"""What a scheme may need beside the discussions, by the names of its arguments."""
ResponseLogprobs = Callable[[Sequence[TrainingSample]], Sequence[Sequence[float]]]
"""Samples to the log-probs of their responses' tokens, under their agents' present policies."""
JudgeLogprobs = Callable[[Sequence[Generation]], Sequence[Sequence[float]]]
"""Responses to the log-probs of their tokens under ``society.judge``."""


def no_logprobs(samples: Sequence[TrainingSample] | Sequence[Generation]) -> list[list[float]]:
    """Return zeros, where there are no policies."""
    return [[0.0] * len(sample.response_token_ids) for sample in samples]


def offer_evidence(
    wait_for_verdicts: Callable[[], Verdicts],
    *,
    response_logprobs: ResponseLogprobs = no_logprobs,
    judge_logprobs: JudgeLogprobs = no_logprobs,
    seed: int,
    step: int,
) -> Evidence:
    """Return what a scheme may choose from at ``step`` (0: a validation), computed when needed.

    ``verdicts``: turn -> what the verifier says of it (``Verdicts``); a scheme that needs them is
    not CoMAS's, whose rewards come from the discussion alone. ``rng``: the step's own generator
    (``Random``). ``response_logprobs`` and ``judge_logprobs`` are functions of these types.
    """
    return {
        "verdicts": wait_for_verdicts,
        "rng": lambda: Random(f"{seed}/{step}/rewards"),
        "response_logprobs": lambda: response_logprobs,
        "judge_logprobs": lambda: judge_logprobs,
        "step": lambda: step,
    }


@dataclass(frozen=True)
class RewardScheme:
    """A function from a step's discussions to rewards, and what it has to be given.

    ``formulate(discussions, **evidence)`` is called with the whole batch, so a scheme may compare
    the discussions of one question; ``evidence`` holds what ``needs`` names and nothing else.
    """

    formulate: Callable[..., Rewards]
    reads: Outcome | None = None
    """What it reads in the discussions; the criticism has to make it."""
    needs: tuple[str, ...] = ()
    pays_alike: bool = False
    """True if all responses of a role have the same reward on purpose, as in a control."""
    compares_policies: bool = False
    """True if it compares the policies of agents, which each must have for itself."""
    pays_some: bool = False
    """True if it leaves turns unpaid on purpose, as one of solutions alone; else all are paid."""
    reads_columns: bool = False
    """True if it reads ``Question.columns``, labels among them."""
    teaches: Callable[[Sequence[RewardedDiscussion]], bool] | None = None
    """Says of a question's discussions whether there is anything to learn from their rewards; where
    there is not, the step discusses further questions in its place. None: nobody asks."""
    max_draws: int = 1
    """How many batches of questions a step may discuss in all, if ``teaches`` is given."""
    curriculum: Curriculum | None = None
    """None: every question is asked once in an epoch."""

    @property
    def sees_verdicts(self) -> bool:
        """True if its rewards are made of what the verifier says, or of labels."""
        return self.reads_columns or "verdicts" in self.needs

    def __call__(self, discussions: Sequence[Discussion], *, evidence: Evidence) -> Rewards:
        """Reward a batch; of ``evidence`` only what is needed is computed and handed over."""
        rewards: Any = self.formulate(discussions, **{n: evidence[n]() for n in self.needs})
        num = f" of {len(rewards.discussions)}" if isinstance(rewards, Rewards) else ""
        if num != f" of {len(discussions)}":
            raise ValueError(
                f"reward.scheme: for {len(discussions)} discussions it returned "
                f"{type(rewards).__name__}{num}; let it return Rewards, a RewardedDiscussion each"
            )
        metrics = {name: as_number(value) for name, value in rewards.metrics.items()}
        return Rewards([of_agents(item) for item in rewards.discussions], metrics)


def of_agents(item: RewardedDiscussion) -> RewardedDiscussion:
    """Return a discussion without rewards of turns that no agent generated.

    Raises ValueError unless every turn has a finite reward, or None.
    """
    turns, rewards = item.discussion.turns, [as_number(reward) for reward in item.rewards]
    if len(rewards) != len(turns) or not all(r is None or isfinite(r) for r in rewards):
        raise ValueError(
            f"reward.scheme gave the {len(turns)} turns of discussion "
            f"{item.discussion.discussion_id} the rewards {item.rewards}; let it give each turn a "
            "finite number or None"
        )
    paid = zip(turns, rewards, strict=True)
    return replace(item, rewards=tuple(None if turn.is_given else r for turn, r in paid))


def _as_scheme(found: Any) -> RewardScheme | None:
    """A bare function needs nothing but the discussions."""
    if isinstance(found, ForeignReward):
        return RewardScheme(found, needs=("step",), pays_some=True, reads_columns=True)
    if not callable(found):
        return None
    if not isinstance(found, RewardScheme):
        found = RewardScheme(found)
    check_call(found.formulate, "discussions", named=found.needs)
    return found


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
        "verifier": _by_scores(verifier_reward, needs=("verdicts",)),
        "verifier_climbing": _by_scores(verifier_climbing_reward, needs=("verdicts",)),
        "maporl": _by_verdicts(partial(maporl_reward, shaping=plain)),
        "maporl_quality": _by_verdicts(partial(maporl_reward, shaping=quality)),
        "maporl_margin": _by_verdicts(partial(maporl_reward, shaping=margin)),
        "maporl_outcome": _by_verdicts(partial(maporl_reward, shaping=outcome)),
        "mean_rating": RewardScheme(mean_rating, reads="ratings", pays_some=True),
        "majority": RewardScheme(majority_reward, pays_some=True),
    },
    group="comas.rewards",
    wanted="a function from discussions to Rewards, or a RewardScheme",
    adapt=_as_scheme,
    prefixes=FOREIGN,
)
"""Reward schemes, by the name that ``reward.scheme`` gives them."""
