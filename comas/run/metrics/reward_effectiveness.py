"""How well rewards and judges tell correct solutions from others. No reward uses these metrics."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from statistics import fmean

import numpy as np

from comas.interaction.prompts import APPROVALS
from comas.reward_formulation.interaction_reward import parse_score
from comas.types import Discussion, Metrics, RewardedDiscussion
from comas.verification.forms import Verdict
from comas.verification.latex import compared_as
from comas.verification.solutions import Verdicts

PREDICTS_CORRECT = {"from_score_2": 0.5, "from_score_3": 1.0}
"""Thresholds from which on a reward predicts a correct solution (the paper names none); a score of
2 stands for flaws that do not change the result."""
MIN_OF_EACH = 5
"""Correct, and other, solutions from which on a step's AUC is told."""

SCORE_LABELS = {1: "score_1", 2: "score_2", 3: "score_3", None: "invalid"}


def reward_effectiveness(
    rewarded: Sequence[RewardedDiscussion], *, verdicts: Verdicts, sees_verdicts: bool = False
) -> Metrics:
    """Return reward effectiveness (section 5 of the paper), which takes a solution's reward as a
    prediction of its correctness, for each threshold of ``PREDICTS_CORRECT``, and how often each
    score was given to correct and to other solutions (None if nobody scored).

    Unanswered solutions are incorrect; those on which the verifier failed are left out. A quotient
    over nothing is None, and so are all for a reward scheme that ``sees_verdicts``.

    Example: rewards (1, 0.5, 0) of (correct, wrong, correct) solutions: no AUC of so few; from
    score 2 on, accuracy 1/3, precision 1/2, recall 1/2, specificity 0; from 3 on, 2/3, 1, 1/2, 1.
    """
    judged: list[tuple[float, bool]] = []
    table: Counter[tuple[int | None, bool]] = Counter()
    for item in rewarded:
        discussion = item.discussion
        turn_ids = (turn.turn_id for turn in discussion.turns)
        reward_of = dict(zip(turn_ids, item.rewards, strict=True))
        for solution in discussion.solutions():
            verdict = verdicts.get((discussion.discussion_id, solution.turn_id))
            if verdict is None or verdict == "failed":
                continue
            is_correct, reward = verdict == "correct", reward_of[solution.turn_id]
            if reward is not None and not sees_verdicts:
                judged.append((reward, is_correct))
            for scoring in discussion.scorings(solution):
                if discussion.solution_of(scoring) == solution:
                    table[parse_score(scoring.text), is_correct] += 1
    metrics: Metrics = {
        "reward_effectiveness/auc": auc(judged),
        "scoring/entropy": entropy(score for score, _ in table.elements() if score),
    }
    for name, threshold in PREDICTS_CORRECT.items():
        for quality, value in qualities(judged, threshold=threshold).items():
            metrics[f"reward_effectiveness/{name}/{quality}"] = value
    for score, name in SCORE_LABELS.items():
        for is_correct, truth in ((True, "correct"), (False, "incorrect")):
            count = table[score, is_correct] if table else None
            metrics[f"scoring/confusion/{name}/{truth}"] = count
    return metrics


def false_accusations(discussions: Sequence[Discussion], *, verdicts: Verdicts) -> Metrics:
    """Return how often correct solutions are accused (their scored evaluation is not the plain
    approval, ``prompts.APPROVALS``), and how often scorers accept that.

    Example: correct solutions of which one is approved and two are accused, with the scores 1 and
    3: 2/3 and 1/2.
    """
    scores: list[int | None] = []
    num_evaluations = 0
    for discussion in discussions:
        for solution in discussion.solutions():
            if verdicts.get((discussion.discussion_id, solution.turn_id)) != "correct":
                continue
            for evaluation in discussion.children(solution, "judges"):
                scorings = discussion.children(evaluation, "scores")
                num_evaluations += len(scorings)
                if APPROVALS[discussion.question.domain] not in evaluation.text:
                    scores += [parse_score(scoring.text) for scoring in scorings]
    return {
        "evaluation/false_accusation_rate": _quotient(len(scores), num_evaluations),
        "scoring/false_accusations_accepted": _quotient(scores.count(1), len(scores)),
    }


def agreement(rewarded: Iterable[RewardedDiscussion], *, verdicts: Verdicts) -> Metrics:
    """Return how far solutions of one question, in any of its discussions, agree, and how far a
    reward depends on the answer. With r and r' the rewards of two solutions of a question::

        reliability = 1 - mean (r - r')^2 where the answers are the same
                          / mean (r - r')^2 where they differ

    At 0 the reward says nothing about which answer is right. A high value promises nothing: judges
    that agree may all be wrong. Our formula, after peer prediction (Dasgupta and Ghosh 2013). None
    if no two answers are the same, or different answers have no different rewards.

    ``majority/share`` is the share of solutions that give the commonest answer of their question,
    as a mean over questions with several solutions that say something and have a verdict, and
    ``majority/wrong`` the same with 0 where that answer is correct: it rises where agents come to
    agree on mistakes.

    Example: one question with (7, 1), (7, 0.5), (8, 0), where 8 is correct: a reliability of
    1 - 0.25 / ((1 + 0.25) / 2) = 0.6, and shares of 2/3 and 2/3.
    """
    answers: dict[str, list[tuple[str, float | None, Verdict | None]]] = defaultdict(list)
    for item in rewarded:
        discussion = item.discussion
        turn_ids = (turn.turn_id for turn in discussion.turns)
        reward_of = dict(zip(turn_ids, item.rewards, strict=True))
        for solution in discussion.solutions():
            verdict = verdicts.get((discussion.discussion_id, solution.turn_id))
            given = compared_as(solution.text), reward_of[solution.turn_id], verdict
            answers[discussion.question.question_id].append(given)
    same, different, shares, wrong = (list[float]() for _ in range(4))
    for solutions in answers.values():
        for (answer, reward, _), (other, paid, _) in combinations(solutions, 2):
            if reward is not None and paid is not None:
                (same if answer == other else different).append((reward - paid) ** 2)
        votes = [(a, v) for a, _, v in solutions if a and v not in (None, "failed")]
        if len(votes) > 1:
            answer, count = Counter(given for given, _ in votes).most_common(1)[0]
            shares.append(count / len(votes))
            wrong.append(0.0 if (answer, "correct") in votes else shares[-1])
    is_reliable = same and any(different)
    return {
        "instruments/reliability": 1 - fmean(same) / fmean(different) if is_reliable else None,
        "majority/share": fmean(shares) if shares else None,
        "majority/wrong": fmean(wrong) if wrong else None,
    }


def auc(judged: Iterable[tuple[float, bool]]) -> float | None:
    """Return the share of pairs of a correct and another solution in which the correct one has the
    higher reward; ties count half. None below ``MIN_OF_EACH``."""
    rewards, are_correct = np.array([*judged], float).reshape(-1, 2).T
    _, places = np.unique(rewards, return_inverse=True)
    correct, other = (np.bincount(places, which) for which in (are_correct, 1 - are_correct))
    num_correct, num_other = correct.sum(), other.sum()
    wins = correct @ (other.cumsum() - other / 2)
    return wins / num_correct / num_other if min(num_correct, num_other) >= MIN_OF_EACH else None


def entropy(values: Iterable[Hashable]) -> float | None:
    """Return the entropy of how often each value occurs, in nats; None without values. Example: two
    scores of 1 and two of 3: log 2 = 0.69."""
    counts = np.array([*Counter(values).values()], float)
    shares = counts / counts.sum()
    return float(shares @ np.log(1 / shares)) if counts.size else None


def qualities(judged: Iterable[tuple[float, bool]], *, threshold: float) -> Metrics:
    """Return the quotients of ``reward_effectiveness``, from each solution's reward and whether
    it is correct."""
    outcomes = Counter((reward >= threshold, is_correct) for reward, is_correct in judged)
    true_positives, false_positives = outcomes[True, True], outcomes[True, False]
    false_negatives, true_negatives = outcomes[False, True], outcomes[False, False]
    right, wrong = true_positives + true_negatives, false_positives + false_negatives
    recall = _quotient(true_positives, true_positives + false_negatives)
    specificity = _quotient(true_negatives, true_negatives + false_positives)
    balanced = None if recall is None or specificity is None else (recall + specificity) / 2
    return {
        "accuracy": _quotient(right, right + wrong),
        "balanced_accuracy": balanced,
        "precision": _quotient(true_positives, true_positives + false_positives),
        "recall": recall,
        "specificity": specificity,
        "f1": _quotient(2 * true_positives, 2 * true_positives + wrong),
    }


def _quotient(part: int, whole: int) -> float | None:
    return part / whole if whole else None
