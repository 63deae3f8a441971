"""One policy per role: agent 0 solves, agent 1 evaluates, agent 2 scores, in every round.

Source: arXiv 2605.24202, which compares shared policies with one per role (results/votes.md).
"""

from collections.abc import Sequence

from comas.interaction.discussion import Critics, OpenDiscussion
from comas.interaction.schedules import Talks, take_turns


def one_for_each_role(discussions: Sequence[OpenDiscussion], **_: object) -> Talks:
    """The sequential schedule with fixed speakers; further agents are not asked."""
    rules = discussions[0].rules
    rounds = [(0, [Critics(1, 2)] * rules.num_evaluations)] * rules.num_rounds
    return [take_turns(discussion, rounds) for discussion in discussions]
