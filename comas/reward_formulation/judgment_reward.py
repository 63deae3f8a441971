"""The reward of the paper's ablation without scoring: a vote of the evaluators' judgments."""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal, cast, get_args

from comas.reward_formulation.reading import content_of
from comas.types import Discussion, RewardedDiscussion, Rewards

Judgment = Literal["correct", "incorrect"]
INVALID_JUDGMENT_REWARD = -1.0


def judgment_reward(discussions: Sequence[Discussion]) -> Rewards:
    """Reward each discussion by itself, and measure how many judgments approve or are missing."""
    judgments = [parse_judgment(turn.text) for d in discussions for turn in d.turns_that("judges")]
    return Rewards(
        [_reward_discussion(discussion) for discussion in discussions],
        {
            "judgment/approval_rate": _share(judgments, "correct"),
            "judgment/invalid_rate": _share(judgments, None),
        },
    )


def _reward_discussion(discussion: Discussion) -> RewardedDiscussion:
    """Reward solutions and evaluations.

    The paper rewards a solution by the share of supporting judgments, and an evaluation by its
    agreement with the others. Our reading, for a solution s with evaluations e_1 .. e_n::

        r(s)   = number of e_j that judge "correct" / n
        r(e_j) = number of the other e_i with the judgment of e_j / (n - 1)
        r(e_j) = -1    without a readable judgment, which supports nothing and agrees with nobody

    A solution without evaluations gets None, as does a lone evaluation (if the others' prompts were
    over the limit).

    Example: judgments (correct, correct, incorrect): r(s) = 2/3, r(e) = (1/2, 1/2, 0).
    """
    rewards: dict[str, float] = {}
    for solution in discussion.solutions():
        evaluations = discussion.children(solution, "judges")
        judgments = [parse_judgment(evaluation.text) for evaluation in evaluations]
        if judgments:
            rewards[solution.turn_id] = judgments.count("correct") / len(judgments)
        if len(judgments) > 1:
            for evaluation, judgment in zip(evaluations, judgments, strict=True):
                others = (judgments.count(judgment) - 1) / (len(judgments) - 1)
                rewards[evaluation.turn_id] = others if judgment else INVALID_JUDGMENT_REWARD
    return RewardedDiscussion.by_turn(discussion, rewards)


def parse_judgment(response_text: str) -> Judgment | None:
    """Return what is between ``<judgment>`` tags, or None, as strictly as ``parse_score``.

    >>> parse_judgment("A sign is lost. <judgment>incorrect</judgment>")
    'incorrect'
    """
    content = content_of(response_text, tag="judgment")
    return cast(Judgment, content) if content in get_args(Judgment) else None


def _share(judgments: Sequence[Judgment | None], wanted: Judgment | None) -> float | None:
    return fmean(judgment == wanted for judgment in judgments) if judgments else None
