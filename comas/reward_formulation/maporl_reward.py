"""MAPoRL: the verifier rewards every answer of a debate, optionally shaped by earlier rounds."""

from collections.abc import Sequence
from statistics import fmean

from comas.types import Discussion, RewardedDiscussion, Rewards
from comas.verification.solutions import Verdicts


def maporl_reward(
    discussions: Sequence[Discussion], *, verdicts: Verdicts, alpha: float = 0.0
) -> Rewards:
    """Reward every solution by r + alpha (Q r - (1 - Q)(1 - r)), or by r in the first round: more
    for being right as others were, less for being wrong as others were.

    r is 1 for a correct answer, else 0; Q is the mean r of all answers in earlier rounds (that it
    covers all agents is our reading). Answers on which the verifier failed get None and are left
    out of means.
    """
    return Rewards([_reward_debate(d, verdicts, alpha) for d in discussions])


def _reward_debate(discussion: Discussion, verdicts: Verdicts, alpha: float) -> RewardedDiscussion:
    known = [
        (turn, float(verdict == "correct"))
        for turn in discussion.solutions()
        if (verdict := verdicts[discussion.discussion_id, turn.turn_id]) != "failed"
    ]
    paid = {}
    for turn, r in known:
        earlier = [other for t, other in known if t.round_index < turn.round_index]
        q = fmean(earlier) if earlier else None
        shaped = 0.0 if q is None else q * r - (1 - q) * (1 - r)
        paid[turn.turn_id] = r + alpha * shaped
    return RewardedDiscussion.by_turn(discussion, paid)
