"""TTRL: the answer that most solutions of a question agree on takes the place of the right one."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean

from comas.types import Discussion, Domain, Metrics, RewardedDiscussion, Rewards, Turn
from comas.verification.latex import spelled_answer

VOTING_DOMAINS: tuple[Domain, ...] = ("math",)
"""Where answers can be compared as texts: not programs, nor measured numbers."""

Weigh = Callable[[Discussion, Turn], float | None]
"""The weight of a solution's vote; None: it takes no part."""


def one_vote(_: Discussion, __: Turn) -> float:
    """Return 1 for every solution: TTRL's vote."""
    return 1.0


def majority_reward(discussions: Sequence[Discussion]) -> Rewards:
    r"""Reward a math solution by 1 when its boxed answer is the majority's, else by 0.

    The vote is among all solutions of all copies of a question; two answers are the same when they
    are spelled the same. The first given wins a tie. A solution without a boxed answer has no vote
    and gets 0. Where nobody votes, and for coding and science, there is no label: the reward is
    None, and no constant that whitening would turn into an advantage.

    ``majority/share`` is the mean share of solutions that agree with their question's majority.

    Example: \boxed{7}, \boxed{8}, \boxed{7}, "no idea" get 1, 0, 1, 0; the share is 1/2.
    """
    elected, metrics = hold_votes(discussions, one_vote)
    rewarded = []
    for discussion in discussions:
        label = elected.get(discussion.question.question_id)
        paid = {
            turn.turn_id: float(spelled_answer(turn.text) == label)
            for turn in discussion.solutions()
            if label is not None
        }
        rewards = tuple(paid.get(turn.turn_id) for turn in discussion.turns)
        rewarded.append(RewardedDiscussion(discussion, rewards))
    return Rewards(rewarded, metrics)


def hold_votes(discussions: Sequence[Discussion], weigh: Weigh) -> tuple[dict[str, str], Metrics]:
    """Return question id -> the answer whose votes count most, where any counts more than 0; and
    ``majority/share``."""
    ballots: defaultdict[str, list[tuple[str | None, float]]] = defaultdict(list)
    for discussion in discussions:
        if discussion.question.domain in VOTING_DOMAINS:
            for solution in discussion.solutions():
                if (weight := weigh(discussion, solution)) is not None:
                    vote = spelled_answer(solution.text)
                    ballots[discussion.question.question_id].append((vote, weight))
    elected, shares = {}, []
    for question_id, votes in ballots.items():
        counts: defaultdict[str, float] = defaultdict(float)
        for vote, weight in votes:
            if vote is not None and weight > 0:
                counts[vote] += weight
        if counts:
            elected[question_id] = max(counts, key=counts.__getitem__)  # of equal ones the first
            shares.append(fmean(vote == elected[question_id] for vote, _ in votes))
    return elected, {"majority/share": fmean(shares) if shares else None}
