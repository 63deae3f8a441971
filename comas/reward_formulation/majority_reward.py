"""TTRL: the answer that most solutions of a question give is taken for the right one."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from comas.types import Discussion, Domain, RewardedDiscussion, Rewards, Turn
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

    Example: \boxed{7}, \boxed{8}, \boxed{7}, "no idea" get 1, 0, 1, 0.
    """
    elected = hold_votes(discussions, one_vote)
    rewarded = []
    for discussion in discussions:
        label = elected.get(discussion.question.question_id)
        paid = {
            turn.turn_id: float(spelled_answer(turn.text) == label)
            for turn in discussion.solutions()
            if label is not None
        }
        rewarded.append(RewardedDiscussion.by_turn(discussion, paid))
    return Rewards(rewarded)


def hold_votes(discussions: Sequence[Discussion], weigh: Weigh) -> dict[str, str]:
    """Return the elected answers, by question id, if any vote has a weight above 0."""
    ballots: defaultdict[str, list[tuple[str | None, float]]] = defaultdict(list)
    for discussion in discussions:
        if discussion.question.domain in VOTING_DOMAINS:
            for solution in discussion.solutions():
                if (weight := weigh(discussion, solution)) is not None:
                    vote = spelled_answer(solution.text)
                    ballots[discussion.question.question_id].append((vote, weight))
    elected = {}
    for question_id, votes in ballots.items():
        counts: defaultdict[str, float] = defaultdict(float)
        for vote, weight in votes:
            if vote is not None and weight > 0:
                counts[vote] += weight
        if counts:
            elected[question_id] = max(counts, key=counts.__getitem__)  # the first of a tie
    return elected
