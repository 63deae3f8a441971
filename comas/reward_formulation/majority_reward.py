"""TTRL: the answer that most solutions of a question agree on takes the place of the right one."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from comas.types import Discussion, Domain, Metrics, RewardedDiscussion, Rewards, Turn
from comas.verification.latex import spelled_answer

VOTING_DOMAINS: tuple[Domain, ...] = ("math",)
"""Where answers can be compared as texts: not programs, nor measured numbers."""


Ballot = tuple[str | None, float]
"""The answer that a solution votes for, and what that counts."""
Weigh = Callable[[Turn], float]
"""What the vote of a solution counts."""


def one_vote(_: Turn) -> float:
    """Every solution counts the same: TTRL's vote."""
    return 1.0


def confidence(solution: Turn) -> float:
    """The geometric mean of the probabilities of its tokens, as they were sampled.

    Votes by self-certainty (arXiv 2605.22620) weigh by the whole distribution at every token, of
    which a rollout keeps the sampled token's probability alone.
    """
    logprobs = solution.generation.rollout_logprobs
    return math.exp(fmean(logprobs)) if logprobs else 0.0


def majority_reward(discussions: Sequence[Discussion], *, weigh: Weigh = one_vote) -> Rewards:
    r"""Reward a math solution by 1 when its boxed answer is the majority's, else by 0.

    The vote is among all solutions of all copies of a question, each of which counts what ``weigh``
    says; two answers are the same when they are spelled the same. The first given wins a tie. A
    solution without a boxed answer has no vote and gets 0. Where nobody votes, and for coding and
    science, there is no label: the reward is None, and no constant that whitening would turn into
    an advantage.

    ``majority/share`` is the mean share of solutions that agree with their question's majority.

    Example: \boxed{7}, \boxed{8}, \boxed{7}, "no idea" get 1, 0, 1, 0; the share is 1/2.
    """
    ballots: defaultdict[str, list[Ballot]] = defaultdict(list)
    for discussion in discussions:
        if discussion.question.domain in VOTING_DOMAINS:
            solutions = discussion.children(None, "solution")
            ballots[discussion.question.question_id] += [
                (spelled_answer(s.text), weigh(s)) for s in solutions
            ]
    elected, metrics = hold_votes(ballots)
    return Rewards([_reward(d, elected.get(d.question.question_id)) for d in discussions], metrics)


def hold_votes(ballots: Mapping[str, Sequence[Ballot]]) -> tuple[dict[str, str], Metrics]:
    """The answer that each question's votes elect, where any counts; and ``majority/share``."""
    elected = {
        question_id: answer
        for question_id, votes in ballots.items()
        if (answer := _elect(votes)) is not None
    }
    shares = [
        fmean(vote == answer for vote, _ in ballots[question_id])
        for question_id, answer in elected.items()
    ]
    return elected, {"majority/share": fmean(shares) if shares else None}


def _elect(votes: Sequence[Ballot]) -> str | None:
    """The answer whose votes count most, of equal ones the first given; None: none counts."""
    counts: defaultdict[str, float] = defaultdict(float)
    for vote, weight in votes:
        if vote is not None and weight > 0:
            counts[vote] += weight
    return max(counts, key=counts.__getitem__, default=None)


def _reward(discussion: Discussion, label: str | None) -> RewardedDiscussion:
    return RewardedDiscussion(
        discussion,
        tuple(
            None
            if label is None or turn.role != "solution"
            else float(spelled_answer(turn.text) == label)
            for turn in discussion.turns
        ),
    )
