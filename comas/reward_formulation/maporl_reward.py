"""MAPoRL: the verifier rewards every answer of a debate, in three ways also by its place in it."""

from collections.abc import Callable, Sequence
from statistics import fmean

from comas.types import Discussion, RewardedDiscussion, Rewards, Turn
from comas.verification.solutions import Verdicts

ALPHA = 0.5
"""a: weight of the earlier answers."""
BETA = 0.5
"""b: weight of the last answer."""

Shaping = Callable[[float, float | None, float | None], float | None]
"""(r, Q, r_final) -> reward. r is 1 for a correct answer and 0 for any other, Q the mean r of the
rounds before (None: there are none), r_final that of the agent's answer in the last round (None:
it is not known)."""


def maporl_reward(
    discussions: Sequence[Discussion], *, verdicts: Verdicts, shaping: Shaping
) -> Rewards:
    """Reward every solution by ``shaping``; turns of other roles get None.

    Our reading of "earlier": the answers of all agents in all rounds before. An answer on which
    the verifier failed is not trained, and counts in no mean.
    """
    return Rewards([_reward_debate(d, verdicts=verdicts, shaping=shaping) for d in discussions])


def plain(r: float, q: float | None, final: float | None) -> float:
    """r"""
    return r


def quality(r: float, q: float | None, final: float | None) -> float:
    """r + a (Q r - (1 - Q)(1 - r)): more for agreeing with good answers, less for being wrong
    where others were as well; r in the first round."""
    return r if q is None else r + ALPHA * (q * r - (1 - q) * (1 - r))


def margin(r: float, q: float | None, final: float | None) -> float:
    """r + a (r - Q): what an answer adds to those before; r in the first round."""
    return r if q is None else r + ALPHA * (r - q)


def outcome(r: float, q: float | None, final: float | None) -> float | None:
    """r + b r_final, in the last round r + b r."""
    return None if final is None else r + BETA * final


def _reward_debate(
    discussion: Discussion, *, verdicts: Verdicts, shaping: Shaping
) -> RewardedDiscussion:
    solutions = discussion.solutions()
    last_round = max((turn.round_index for turn in solutions), default=0)
    known = {
        turn.turn_id: float(verdict == "correct")
        for turn in solutions
        if (verdict := verdicts[discussion.discussion_id, turn.turn_id]) != "failed"
    }

    def reward(turn: Turn) -> float | None:
        if turn.turn_id not in known:
            return None
        before = [t for t in solutions if t.round_index < turn.round_index]
        earlier = [known[t.turn_id] for t in before if t.turn_id in known]
        finals = [
            known.get(t.turn_id)
            for t in solutions
            if (t.round_index, t.agent_index) == (last_round, turn.agent_index)
        ]
        q = fmean(earlier) if earlier else None
        return shaping(known[turn.turn_id], q, finals[0] if finals else None)

    return RewardedDiscussion(discussion, tuple(map(reward, discussion.turns)))
