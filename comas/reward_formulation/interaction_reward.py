"""The interaction reward of CoMAS: solver and evaluator share what the scorer decides."""

from collections.abc import Callable, Sequence
from statistics import fmean

from comas.reward_formulation.scheme import Rewards
from comas.reward_formulation.score_parsing import parse_score
from comas.types import Discussion, RewardedDiscussion, Turn

INVALID_SCORING_REWARD = -1.0

Shares = tuple[float, float, float]
"""(r(s), r(e), r(t)) of one scoring."""
Share = Callable[[Discussion, Turn, int | None], Shares | None]
"""What a scoring of that solution with that score gives; no score: it holds none. None: nobody
is trained on it."""


def interaction_reward(discussions: Sequence[Discussion]) -> Rewards:
    """The paper's rewards (see ``reward_discussion``), each discussion by itself."""
    return share_rewards(discussions, lambda _, __, score: rewards_of_score(score))


def share_rewards(discussions: Sequence[Discussion], share: Share) -> Rewards:
    """Reward every scoring by ``share``, and count the scorings without a score.

    ``scoring/invalid_rate`` is the share of scorings from which no score could be read.
    """
    scores = [
        parse_score(turn.text) for d in discussions for turn in d.turns if turn.role == "scoring"
    ]
    invalid_rate = fmean(score is None for score in scores) if scores else None
    return Rewards(
        [reward_discussion(discussion, share) for discussion in discussions],
        {"scoring/invalid_rate": invalid_rate},
    )


def reward_discussion(discussion: Discussion, share: Share) -> RewardedDiscussion:
    """Give every turn its reward: of a scoring t of an evaluation e of a solution s, ``share``
    says r(s), r(e) and r(t).

    A solution with several scorings gets the mean of its r(s) (our reading for n > 1; the
    paper's n is 1). A turn that nobody scored (its scoring's prompt was over the limit), that
    nobody said, or of another role, gets None and is not trained. Where a solution is scored
    without an evaluation, there is no r(e).

    Example: one solution scored 2 by one evaluation's scorer: rewards (0.5, 0.5, 0.0).
    """
    rewards: dict[str | None, float] = {}
    for solution in discussion.children(None, "solution"):
        of_solution = []
        for scoring in discussion.scorings(solution):
            shares = share(discussion, solution, parse_score(scoring.text))
            if shares is None:
                continue
            of_solution.append(shares[0])
            # Without an evaluation the parent is the solution, whose own reward is set below.
            rewards[scoring.parent_turn_id], rewards[scoring.turn_id] = shares[1:]
        if of_solution:
            rewards[solution.turn_id] = fmean(of_solution)
    return RewardedDiscussion(
        discussion,
        tuple(None if turn.is_given else rewards.get(turn.turn_id) for turn in discussion.turns),
    )


def rewards_of_score(score: int | None) -> Shares:
    """Equations 7 and 8 of the paper, for the score extracted from t::

    r(s) = (score - 1) / 2      r(e) = 1 - r(s)      r(t) = 0
    r(s) = 0                    r(e) = 0             r(t) = -1    when there is no score
    """
    if score is None:
        return 0.0, 0.0, INVALID_SCORING_REWARD
    of_solution = (score - 1) / 2
    return of_solution, 1.0 - of_solution, 0.0
