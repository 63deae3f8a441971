"""MAPoRL: the verifier rewards every answer of a debate, optionally shaped by the other rounds."""

from collections.abc import Callable, Sequence
from statistics import fmean

from comas.types import Discussion, RewardedDiscussion, Rewards, Turn
from comas.verification.solutions import Verdicts

ALPHA = 0.5
"""Weight of earlier answers."""
BETA = 0.5
"""Weight of the last answer."""

Shaping = Callable[[float, float | None, float | None], float | None]
"""(r, Q, r_final) -> reward. r is 1 for a correct answer, else 0; Q is the mean r of all answers in
earlier rounds (None in the first); r_final is the agent's r in the last round (None if unknown)."""


def maporl_reward(
    discussions: Sequence[Discussion], *, verdicts: Verdicts, shaping: Shaping
) -> Rewards:
    """Reward every solution by ``shaping``. Answers on which the verifier failed get None and are
    left out of means. That Q covers all agents is our reading."""
    return Rewards([_reward_debate(d, verdicts=verdicts, shaping=shaping) for d in discussions])


def plain(r: float, q: float | None, final: float | None) -> float:
    """r"""
    return r


def quality(r: float, q: float | None, final: float | None) -> float:
    """r + a (Q r - (1 - Q)(1 - r)): more for being right as others were, less for being wrong as
    others were; r in the first round."""
    return r if q is None else r + ALPHA * (q * r - (1 - q) * (1 - r))


def margin(r: float, q: float | None, final: float | None) -> float:
    """r + a (r - Q): the improvement over earlier answers; r in the first round."""
    return r if q is None else r + ALPHA * (r - q)


def outcome(r: float, q: float | None, final: float | None) -> float | None:
    """r + b r_final."""
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
