"""Controls: the paper's rewards without the scorer's decision, for comparison.

Scorings are rewarded as in the paper, 0 or -1 by their format. Otherwise agents would unlearn the
format, and a comparison would show only that.
"""

from collections.abc import Sequence
from random import Random

from comas.reward_formulation.interaction_reward import (
    RewardTriple,
    interaction_reward,
    reward_by_scoring,
    rewards_of_score,
)
from comas.types import Discussion, RewardedDiscussion, Rewards, Turn
from comas.verification.solutions import Verdicts


def flipped_reward(discussions: Sequence[Discussion]) -> Rewards:
    """Equations 7 and 8 with solver and evaluator exchanged, r -> 1 - r.

    r(s) = (3 - score) / 2 and r(e) = 1 - r(s); without a score both get 0, as in the paper.
    """

    def triple_of(_: Discussion, __: Turn, score: int | None) -> RewardTriple:
        paid = rewards_of_score(score)
        return RewardTriple(paid.evaluation, paid.solution, paid.scoring)

    return reward_by_scoring(discussions, triple_of)


def as_if_scored(discussions: Sequence[Discussion], *, score: int) -> Rewards:
    """Rewards as if every scoring had that score, also those that hold none. 2 is a constant: r(s)
    = r(e) = 0.5. 3 is a judge who approves of everything: 1 and 0."""
    return reward_by_scoring(discussions, lambda _, __, said: _with_format(score, said))


def verifier_reward(discussions: Sequence[Discussion], *, verdicts: Verdicts) -> Rewards:
    """The upper bound: solutions are paid for being right, and evaluations are not trained.

    r(s) = 1 for a correct solution, else 0, and r(t) is the paper's. If the verifier failed, no
    turn is trained. Paying evaluations as well gained nothing in a pilot
    (``configs/studies/bound.yaml``).
    """
    rewards = verifier_climbing_reward(discussions, verdicts=verdicts)
    return Rewards([_without_judges(item) for item in rewards.discussions], rewards.metrics)


def verifier_climbing_reward(discussions: Sequence[Discussion], *, verdicts: Verdicts) -> Rewards:
    """The paper's rewards as if the scorer were always right: 3 for a correct solution, else 1.

    This was ``verifier`` until 0.17.0. It is no upper bound: r(e) = 1 - r(s) whatever the
    evaluation says. If the verifier failed, no turn is trained.
    """

    def triple_of(discussion: Discussion, solution: Turn, score: int | None) -> RewardTriple | None:
        verdict = verdicts[discussion.discussion_id, solution.turn_id]
        if verdict == "failed":
            return None
        return _with_format(3 if verdict == "correct" else 1, score)

    return reward_by_scoring(discussions, triple_of)


def shuffled_reward(discussions: Sequence[Discussion], *, rng: Random) -> Rewards:
    """The paper's rewards, dealt anew among all solutions, and among all evaluations of the batch:
    solutions rewarded 1, 0.5 and 0 may get 0, 1 and 0.5."""
    rewards = interaction_reward(discussions)
    dealt = [list(item.rewards) for item in rewards.discussions]
    shared = [t for d in discussions for t in d.turns if d.roles[t.role].purpose != "scores"]
    for role in {turn.role: None for turn in shared}:
        places = [
            (row, column)
            for row, discussion in enumerate(discussions)
            for column, turn in enumerate(discussion.turns)
            if turn.role == role and dealt[row][column] is not None
        ]
        values = [dealt[row][column] for row, column in places]
        rng.shuffle(values)
        for (row, column), value in zip(places, values, strict=True):
            dealt[row][column] = value
    rewarded = map(RewardedDiscussion, discussions, map(tuple, dealt))
    return Rewards(list(rewarded), rewards.metrics)


def _without_judges(item: RewardedDiscussion) -> RewardedDiscussion:
    roles, paid = item.discussion.roles, zip(item.discussion.turns, item.rewards, strict=True)
    kept = (None if roles[turn.role].purpose == "judges" else reward for turn, reward in paid)
    return RewardedDiscussion(item.discussion, tuple(kept))


def _with_format(score: int, said: int | None) -> RewardTriple:
    """Return the rewards for ``score``, with the scoring rewarded by its own format."""
    return rewards_of_score(score)._replace(scoring=rewards_of_score(said).scoring)
