"""What each role is told, by domain: one user message per turn.

The wording is in ``prompts.yaml``, or in a user's own file (``interaction.prompts``). A template's
constant text is used unchanged, so the quick-start tokenizers can hold it as single tokens.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from comas.interaction.wording import SHIPPED_FILE, Wording, location_of, merged, read_wording
from comas.types import Domain

Template = Mapping[Domain, str]
"""A prompt for each domain, with the placeholders {question}, {discussion} (the history) and the
names of the roles whose texts it quotes."""


class RolePrompts(dict[Domain, str]):
    """The shipped prompts of a role, in whose place a user's file may put others."""

    def __init__(self, role: str) -> None:
        super().__init__(SHIPPED[role])  # type: ignore[arg-type]
        self.role = role


class HistoryItem(NamedTuple):
    """A past solution and one evaluation of it, if there is any, as later rounds see them."""

    solution: str
    evaluation: str | None
    is_own: bool = False
    """Whether the solution is of the agent who sees it, where agents are told."""


SHIPPED: Wording = read_wording(SHIPPED_FILE)

EMPTY_HISTORY = SHIPPED["history"]["empty"]
OWN_ITEM = SHIPPED["history"]["own_item"]
HISTORY_ITEM = SHIPPED["history"]["item"]

SOLUTION = RolePrompts("solution")
EVALUATION = RolePrompts("evaluation")
EVALUATION_WITH_JUDGMENT = RolePrompts("evaluation_with_judgment")
"""The critic decides, as nobody scores."""
RATING = RolePrompts("rating")
"""An agent rates its own solution, as self-rewarding models do (arXiv 2401.10020)."""
SCORING = RolePrompts("scoring")
SCORING_ALONE = RolePrompts("scoring_alone")
"""The judge sees no evaluation."""

APPROVALS: dict[Domain, str] = {
    "math": "No mistakes.",
    "science": "No mistakes.",
    "coding": "No test case fails.",
}
"""Evaluations that find nothing, for solutions that nobody is asked to evaluate."""


@cache
def wording_of(prompts: str | None) -> Wording:
    """The whole wording that ``interaction.prompts`` names: what is shipped, but for what the file
    words differently. It is read once in a process. Raises WordingError with its faults."""
    return SHIPPED if prompts is None else merged(read_wording(location_of(prompts)), SHIPPED)


def fill(
    template: Template,
    domain: Domain,
    *,
    question: str,
    history: Sequence[HistoryItem] = (),
    wording: Wording = SHIPPED,
    **quoted: str,
) -> str:
    """The prompt of ``domain``; ``quoted`` are the texts that it may quote, by role.

    Example: ``fill(SCORING, "math", question="What is 1 + 1?", solution="2", evaluation="Right.")``
    """
    texts = wording[template.role] if isinstance(template, RolePrompts) else template
    discussion = discussion_text(history, wording)
    return texts[domain].format(question=question, discussion=discussion, **quoted)


def discussion_text(history: Sequence[HistoryItem], wording: Wording = SHIPPED) -> str:
    """Render the past items, oldest first; "(empty)" when there is none."""
    parts = wording["history"]
    if not history:
        return parts["empty"]
    return "".join(_item_text(item, parts) for item in history).lstrip("\n")


def _item_text(item: HistoryItem, parts: Mapping[str, str]) -> str:
    if item.evaluation is not None:
        return parts["item"].format(solution=item.solution, evaluation=item.evaluation)
    return parts["own_item" if item.is_own else "unevaluated_item"].format(solution=item.solution)
