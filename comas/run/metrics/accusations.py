"""How judges deal with accusations that cannot hold, as the solution is correct.

The verifier tells afterwards which those are: nothing here reaches a reward.
"""

from collections.abc import Sequence

from comas.interaction.prompts import APPROVALS
from comas.reward_formulation.interaction_reward import parse_score
from comas.types import Discussion, Metrics
from comas.verification.solutions import Verdicts


def false_accusations(discussions: Sequence[Discussion], *, verdicts: Verdicts) -> Metrics:
    """Shares among the scored evaluations of solutions that the verifier calls correct.

    An accusation is an evaluation that is not the plain approval (``prompts.APPROVALS``), which
    the quick-start's evaluators may say; a model that is told never to agree always accuses::

        evaluation/false_accusation_rate      = accusations / evaluations
        scoring/false_accusations_accepted    = accusations with the score 1 / accusations

    A quotient over nothing is None. Accusations that name the wrong mistake of a wrong solution
    are false as well, but no verifier can tell.

    Example: correct solutions of which one is approved and two are accused, with the scores 1 and
    3: 2/3 and 1/2.
    """
    scores: list[int | None] = []
    num_evaluations = 0
    for discussion in discussions:
        for solution in discussion.children(None, "solution"):
            if verdicts.get((discussion.discussion_id, solution.turn_id)) != "correct":
                continue
            for evaluation in discussion.children(solution, "evaluation"):
                of_evaluation = discussion.children(evaluation, "scoring")
                num_evaluations += len(of_evaluation)
                if evaluation.text != APPROVALS[discussion.question.domain]:
                    scores += [parse_score(scoring.text) for scoring in of_evaluation]
    return {
        "evaluation/false_accusation_rate": (
            len(scores) / num_evaluations if num_evaluations else None
        ),
        "scoring/false_accusations_accepted": scores.count(1) / len(scores) if scores else None,
    }
