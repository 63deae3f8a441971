"""The interaction reward of CoMAS: solver and evaluator share what the scorer decides."""

from __future__ import annotations

from statistics import fmean

from comas.reward_formulation.score_parsing import parse_score
from comas.types import Discussion, RewardedDiscussion, Turn

INVALID_SCORING_REWARD = -1.0


def interaction_reward(discussion: Discussion) -> RewardedDiscussion:
    """Give every turn its reward (eq. 7 and 8 of the paper).

    For a scoring t of an evaluation e of a solution s, with the score extracted from t::

        r(s) = (score - 1) / 2      r(e) = 1 - r(s)      r(t) = 0
        r(s) = 0                    r(e) = 0             r(t) = -1    when there is no score

    A solution with several scorings gets the mean of its r(s) (our reading for n > 1; the
    paper's n is 1). A turn that nobody scored (its scoring's prompt was over the limit) gets
    None and is not trained.

    Example: one solution scored 2 by one evaluation's scorer: rewards (0.5, 0.5, 0.0).
    """
    rewards: dict[str, float | None] = {turn.turn_id: None for turn in discussion.turns}
    for solution in discussion.children(None, "solution"):
        solution_rewards = []
        for evaluation in discussion.children(solution, "evaluation"):
            for scoring in discussion.children(evaluation, "scoring"):
                of_solution, of_evaluation, of_scoring = _rewards_of_scoring(scoring)
                solution_rewards.append(of_solution)
                rewards[evaluation.turn_id] = of_evaluation
                rewards[scoring.turn_id] = of_scoring
        if solution_rewards:
            rewards[solution.turn_id] = fmean(solution_rewards)
    return RewardedDiscussion(discussion, tuple(rewards[turn.turn_id] for turn in discussion.turns))


def _rewards_of_scoring(scoring: Turn) -> tuple[float, float, float]:
    """(r(s), r(e), r(t)) from one scoring."""
    score = parse_score(scoring.generation.response_text)
    if score is None:
        return 0.0, 0.0, INVALID_SCORING_REWARD
    of_solution = (score - 1) / 2
    return of_solution, 1.0 - of_solution, 0.0
