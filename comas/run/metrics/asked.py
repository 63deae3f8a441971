"""What a reward scheme asked for beyond the discussions."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from comas.types import Discussion, Metrics
from comas.verification.solutions import Verdicts


def asked_metrics(
    discussions: Sequence[Discussion], *, verdicts: Verdicts, of_asked: Verdicts, num_agents: int
) -> Metrics:
    """How much was asked for, and what revisions made of solutions; nothing where nobody was asked.

    ``asked/turns`` counts what was sampled, ``agent_0/asked/turns`` that of an agent;
    ``asked/accuracy`` is the share of correct ones among the solutions asked for. Of those that
    answer something about an earlier solution (a share over nothing is None)::

        asked/corrected_rate = correct ones / those whose earlier solution is not correct
        asked/harmed_rate    = not correct ones / those whose earlier solution is correct

    The verifier only measures. Where it failed on either, the pair is left out.

    Example: revisions of a wrong solution, correct, and of two correct ones, one of them wrong:
    1/1 and 1/2.
    """
    turns = [turn for discussion in discussions for turn in discussion.asked]
    if not turns:
        return {}
    of_agent = Counter(turn.agent_index for turn in turns)
    known = [verdict == "correct" for verdict in of_asked.values()]
    corrected, harmed = [], []
    for (discussion_id, turn_id), after in of_asked.items():
        before = verdicts.get((discussion_id, _root_of(turn_id)))
        if before is None or "failed" in (before, after):
            continue
        if before == "correct":
            harmed.append(after != "correct")
        else:
            corrected.append(after == "correct")
    return {
        "asked/turns": len(turns),
        "asked/truncated_rate": fmean(t.generation.finish_reason == "length" for t in turns),
        "asked/accuracy": _share(known),
        "asked/corrected_rate": _share(corrected),
        "asked/harmed_rate": _share(harmed),
        **{f"agent_{agent}/asked/turns": of_agent[agent] for agent in range(num_agents)},
    }


def _root_of(turn_id: str) -> str:
    """``"r0.s1.e0.s0" -> "r0.s1"``"""
    return ".".join(turn_id.split(".")[:2])


def _share(held: Sequence[bool]) -> float | None:
    return fmean(held) if held else None
