"""TTRL: the answer that most solutions of a question give is taken for the right one."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean

from comas.types import Discussion, Domain, Metrics, RewardedDiscussion, Rewards, Turn
from comas.verification.latex import spelled_answer

VOTING_DOMAINS: tuple[Domain, ...] = ("math",)
"""Domains whose answers can be compared as texts, unlike programs or measured numbers."""

Weigh = Callable[[Discussion, Turn], float | None]
"""Returns the weight of a solution's vote; None excludes the solution."""


def one_vote(_: Discussion, __: Turn) -> float:
    """Return 1, as in TTRL."""
    return 1.0


def majority_reward(discussions: Sequence[Discussion]) -> Rewards:
    r"""Reward a math solution by 1 if its boxed answer is the majority's, else by 0.

    All solutions of all copies of a question vote; answers are equal if spelled equally, and the
    first given wins a tie. A solution without a boxed answer has no vote and gets 0. Without any
    vote, and in all other domains, rewards are None (whitening would turn a constant into an
    advantage).

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
        rewarded.append(RewardedDiscussion.by_turn(discussion, paid))
    return Rewards(rewarded, metrics)


def hold_votes(discussions: Sequence[Discussion], weigh: Weigh) -> tuple[dict[str, str], Metrics]:
    """Return the elected answers, by question id (if any vote has a weight above 0), and
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
            elected[question_id] = max(counts, key=counts.__getitem__)  # the first of a tie
            shares.append(fmean(vote == elected[question_id] for vote, _ in votes))
    return elected, {"majority/share": fmean(shares) if shares else None}
