"""Peer prediction: scorers are paid for agreeing with each other on what they have both read."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

from comas.reward_formulation.interaction_reward import interaction_reward, parse_score
from comas.types import Discussion, RewardedDiscussion, Rewards, Turn

SCORER_SHARE = 0.5
"""The most that a scorer gains or loses by agreement: half of what solver and evaluator divide."""


def peer_prediction_reward(discussions: Sequence[Discussion]) -> Rewards:
    """The paper's rewards of solutions and evaluations, and for a scoring t with the score x::

        r(t) = SCORER_SHARE * (share of the other scorings of the same evaluation that say x
                               - share of the scorings of other questions that say x)
        r(t) = -1    when it holds no score

    The second share takes away what a scorer would gain by always saying the same, so that only
    reading pays (Dasgupta and Ghosh 2013; arXiv 2601.20299 carries the idea to language models and
    measures by log-probabilities what we measure by agreement). Where there is no other scoring of
    the evaluation, or of another question, r(t) is 0, as in the paper.

    ``scoring/agreement`` is the mean of the first share, ``scoring/agreement_by_chance`` that of
    the second.

    Example: of two questions, one evaluation is scored (3, 3), the other (1, 3). The first two get
    0.5 (1 - 1/2), the scoring 1 gets 0.5 (0 - 0) and the last 0.5 (0 - 1).
    """
    base = interaction_reward(discussions)
    by_question: Counter[tuple[str, int]] = Counter()
    for discussion in discussions:
        scores = (parse_score(turn.text) for turn in discussion.turns if turn.role == "scoring")
        by_question.update((discussion.question.question_id, x) for x in scores if x is not None)
    shares = [dict(_shares(discussion, by_question)) for discussion in discussions]
    rewarded = [
        RewardedDiscussion(
            item.discussion,
            tuple(
                SCORER_SHARE * (own[turn.turn_id][0] - own[turn.turn_id][1])
                if turn.turn_id in own
                else reward
                for turn, reward in zip(item.discussion.turns, item.rewards, strict=True)
            ),
        )
        for item, own in zip(base.discussions, shares, strict=True)
    ]
    every = [both for own in shares for both in own.values()]
    agreement, by_chance = (fmean(of) for of in zip(*every, strict=True)) if every else (None, None)
    return Rewards(
        rewarded,
        base.metrics | {"scoring/agreement": agreement, "scoring/agreement_by_chance": by_chance},
    )


def _shares(
    discussion: Discussion, by_question: Counter[tuple[str, int]]
) -> Iterator[tuple[str, tuple[float, float]]]:
    """Of each scoring that has peers: its turn id, and the shares of peers and of strangers who say
    the same."""
    own = discussion.question.question_id
    strangers = Counter[int]()
    for (question_id, score), count in by_question.items():
        if question_id != own:
            strangers[score] += count
    for group in _scored_together(discussion):
        scores = [score for _, score in group]
        for scoring, score in group:
            if len(group) > 1 and strangers:
                agreement = (scores.count(score) - 1) / (len(scores) - 1)
                yield scoring.turn_id, (agreement, strangers[score] / strangers.total())


def _scored_together(discussion: Discussion) -> Iterator[list[tuple[Turn, int]]]:
    """The scorings with a score, by what they score."""
    groups: dict[str | None, list[tuple[Turn, int]]] = {}
    for turn in discussion.turns:
        if turn.role == "scoring" and (score := parse_score(turn.text)) is not None:
            groups.setdefault(turn.parent_turn_id, []).append((turn, score))
    yield from groups.values()
