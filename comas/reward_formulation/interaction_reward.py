"""The interaction reward of CoMAS: solver and evaluator divide one point as the scorer says."""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from comas.types import Discussion, RewardedDiscussion, Rewards, Turn

INVALID_SCORING_REWARD = -1.0


class RewardTriple(NamedTuple):
    """What one scoring gives to the turns that it concludes: r(s), r(e) and r(t)."""

    solution: float
    evaluation: float
    scoring: float


TripleOf = Callable[[Discussion, Turn, int | None], RewardTriple | None]
"""What a scoring of that solution with that score (None: it holds none) gives; None: nothing."""


def interaction_reward(discussions: Sequence[Discussion]) -> Rewards:
    """The paper's rewards: those of ``rewards_of_score`` for every scoring."""
    return reward_by_scoring(discussions, lambda _, __, score: rewards_of_score(score))


def rewards_of_score(score: int | None) -> RewardTriple:
    """Equations 7 and 8 of the paper, for the score extracted from t::

    r(s) = (score - 1) / 2      r(e) = 1 - r(s)      r(t) = 0
    r(s) = 0                    r(e) = 0             r(t) = -1    when there is no score
    """
    if score is None:
        return RewardTriple(0.0, 0.0, INVALID_SCORING_REWARD)
    solution = (score - 1) / 2
    return RewardTriple(solution, 1.0 - solution, 0.0)


def reward_by_scoring(discussions: Sequence[Discussion], triple_of: TripleOf) -> Rewards:
    """Reward every discussion by itself, and return the share of scorings without a score."""
    scores = [
        parse_score(turn.text) for d in discussions for turn in d.turns if turn.role == "scoring"
    ]
    invalid_rate = fmean(score is None for score in scores) if scores else None
    return Rewards(
        [_reward_discussion(discussion, triple_of) for discussion in discussions],
        {"scoring/invalid_rate": invalid_rate},
    )


def _reward_discussion(discussion: Discussion, triple_of: TripleOf) -> RewardedDiscussion:
    """Give every turn its reward: for a scoring t of an evaluation e of a solution s, ``triple_of``
    says r(s), r(e) and r(t).

    A scoring concludes all turns above it up to the nearest solution: evaluations get r(e), all
    others r(s), such as the refinement f of s.e.f.t. Of several scorings below a turn, it gets the
    mean of those nearest to it. A turn that nobody scored or said gets None and is not trained.
    """
    turns = {turn.turn_id: turn for turn in discussion.turns}
    paid: defaultdict[str, dict[int, list[float]]] = defaultdict(dict)
    for scoring in (turn for turn in discussion.turns if turn.role == "scoring"):
        path = [scoring]
        while path[-1].role != "solution" and path[-1].parent_turn_id is not None:
            path.append(turns[path[-1].parent_turn_id])
        if triple := triple_of(discussion, path[-1], parse_score(scoring.text)):
            for distance, turn in enumerate(path):
                reward = triple._asdict().get(turn.role, triple.solution)
                paid[turn.turn_id].setdefault(distance, []).append(reward)
    means = {turn_id: fmean(rewards[min(rewards)]) for turn_id, rewards in paid.items()}
    rewards = (None if turn.is_given else means.get(turn.turn_id) for turn in discussion.turns)
    return RewardedDiscussion(discussion, tuple(rewards))


def parse_score(response_text: str) -> int | None:
    """The score 1, 2 or 3 between ``<score>`` and ``</score>``, or None.

    A score counts only when nothing has to be guessed: every tag belongs to a pair, and all
    pairs hold one and the same of the integers 1, 2, 3.

    >>> parse_score("The point does not hold. <score>3</score>")
    3
    >>> parse_score("<score>3</score> or rather <score>1</score>") is None
    True
    """
    content = content_of(response_text, tag="score")
    return int(content) if content in ("1", "2", "3") else None


def content_of(text: str, *, tag: str) -> str | None:
    """What all pairs of ``tag`` hold, when they agree and no tag is without its other half; in
    linear time, also of a response that collapsed into tags."""
    tags = list(re.finditer(f"</?{tag}>", text))
    opening, closing = tags[::2], tags[1::2]
    if [t[0] for t in tags] != [f"<{tag}>", f"</{tag}>"] * len(closing):
        return None
    pairs = zip(opening, closing, strict=True)
    contents = {text[first.end() : last.start()].strip() for first, last in pairs}
    return contents.pop() if len(contents) == 1 else None
