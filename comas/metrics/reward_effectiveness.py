"""Reward effectiveness (section 5 of the paper): the reward read as a prediction of correctness.

It compares what the society gave itself with what the verifier says, after the fact: nothing
here reaches a reward.
"""

from collections import Counter
from collections.abc import Sequence

from comas.reward_formulation.score_parsing import parse_score
from comas.types import Metrics, RewardedDiscussion, Turn
from comas.verification.solutions import Verdicts

PREDICTS_CORRECT = 0.5
"""A solution's reward from here on says "correct": score 2 stands for flaws that do not change
the result, and only score 1 for a fatal mistake. The paper names no threshold; this is ours."""

TRUTH_LABELS = {True: "correct", False: "incorrect"}
SCORE_LABELS = ("score_1", "score_2", "score_3", "invalid")


def reward_effectiveness(rewarded: Sequence[RewardedDiscussion], *, verdicts: Verdicts) -> Metrics:
    """How well the rewards of a step tell correct solutions from others.

    Over all solutions with a reward and a verdict, with TP, FP, FN, TN as usual and "predicted
    correct" for a reward of at least ``PREDICTS_CORRECT``::

        accuracy = (TP + TN) / all      precision = TP / (TP + FP)
        recall   = TP / (TP + FN)       F1 = 2 TP / (2 TP + FP + FN)

    A solution that the verifier found no answer in is not correct; one on which the verifier
    failed is left out (``train/verifier_failures`` counts them). A quotient over nothing is None.

    The scorer's confusion table is the number of scorings by what was scored and what is true:
    ``scoring/confusion/score_2/correct`` counts the scores of 2 given to correct solutions,
    ``scoring/confusion/invalid/incorrect`` the scorings without a score on incorrect ones.

    Example: rewards (1, 0.5, 0) of solutions that are (correct, wrong, correct): accuracy 1/3,
    precision 1/2, recall 1/2, F1 1/2.
    """
    outcomes: Counter[tuple[bool, bool]] = Counter()
    table: Counter[tuple[str, str]] = Counter()
    for item in rewarded:
        discussion = item.discussion
        turn_ids = (turn.turn_id for turn in discussion.turns)
        reward_of = dict(zip(turn_ids, item.rewards, strict=True))
        for solution in discussion.children(None, "solution"):
            verdict = verdicts.get((discussion.discussion_id, solution.turn_id))
            if verdict is None or verdict == "failed":
                continue
            is_correct, reward = verdict == "correct", reward_of[solution.turn_id]
            if reward is not None:
                outcomes[reward >= PREDICTS_CORRECT, is_correct] += 1
            for scoring in discussion.scorings(solution):
                table[_score_label(scoring), TRUTH_LABELS[is_correct]] += 1
    metrics = _quality(
        true_positives=outcomes[True, True],
        false_positives=outcomes[True, False],
        false_negatives=outcomes[False, True],
        true_negatives=outcomes[False, False],
    )
    for score in SCORE_LABELS:
        for truth in TRUTH_LABELS.values():
            metrics[f"scoring/confusion/{score}/{truth}"] = table[score, truth]
    return metrics


def _score_label(scoring: Turn) -> str:
    score = parse_score(scoring.text)
    return "invalid" if score is None else f"score_{score}"


def _quality(
    *, true_positives: int, false_positives: int, false_negatives: int, true_negatives: int
) -> Metrics:
    right = true_positives + true_negatives
    wrong = false_positives + false_negatives
    return {
        "reward_effectiveness/accuracy": _quotient(right, right + wrong),
        "reward_effectiveness/precision": _quotient(
            true_positives, true_positives + false_positives
        ),
        "reward_effectiveness/recall": _quotient(true_positives, true_positives + false_negatives),
        "reward_effectiveness/f1": _quotient(2 * true_positives, 2 * true_positives + wrong),
    }


def _quotient(part: int, whole: int) -> float | None:
    return part / whole if whole else None
