"""What each role is told, by domain: one user message per turn.

The wording is in ``prompts.yaml`` and, for the domains that the paper does not train on, in
``further_prompts.yaml``; what a user words differently is read by ``comas.interaction.wording``.
A prompt's constant text is used unchanged, so the quick-start tokenizers can hold it as single
tokens.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from comas.types import Domain

SHIPPED_FILE = Path(__file__).parent / "prompts.yaml"
FURTHER_FILE = Path(__file__).parent / "further_prompts.yaml"

Wording = Mapping[str, Mapping[str, str]]
"""Section -> key -> text. A section is what a turn is asked with, whose keys are the domains, or
the history. A text quotes {question}, {discussion} (the history) and, by the names of their roles,
the texts that the turn answers."""
Template = str | Mapping[Domain, str]
"""What a turn is asked with: the name of a section of the wording, or texts of a plug-in's own."""


def _shipped() -> Wording:
    paper, further = (yaml.safe_load(file.read_text()) for file in (SHIPPED_FILE, FURTHER_FILE))
    return {section: {**texts, **further.get(section, {})} for section, texts in paper.items()}


SHIPPED: Wording = _shipped()

SOLUTION, EVALUATION, SCORING = "solution", "evaluation", "scoring"
EVALUATION_WITH_JUDGMENT = "evaluation_with_judgment"
"""The critic decides, as nobody scores."""
SCORING_ALONE = "scoring_alone"
"""The judge sees no evaluation."""
RATING = "rating"
"""An agent rates its own solution, as self-rewarding models do (arXiv 2401.10020)."""

APPROVALS: dict[Domain, str] = {
    "math": "No mistakes.",
    "science": "No mistakes.",
    "coding": "No test case fails.",
    "choice": "No mistakes.",
    "reasoning": "No mistakes.",
}
"""Evaluations that find nothing, for solutions that nobody is asked to evaluate."""


class HistoryItem(NamedTuple):
    """A past solution and one evaluation of it, if there is any, as later rounds see them."""

    solution: str
    evaluation: str | None
    is_own: bool = False
    """True if the solution is of the agent who sees it, where agents are told."""


def fill(
    template: Template,
    domain: Domain,
    *,
    question: str,
    history: Sequence[HistoryItem] = (),
    wording: Wording = SHIPPED,
    **quoted: str,
) -> str:
    """Return the prompt of ``domain``; ``quoted`` are the texts that it may quote, by role.

    Example: ``fill(SCORING, "math", question="What is 1 + 1?", solution="2", evaluation="Right.")``
    """
    texts = wording[template] if isinstance(template, str) else template
    discussion = discussion_text(history, wording)
    return texts[domain].format(question=question, discussion=discussion, **quoted)


def discussion_text(history: Sequence[HistoryItem], wording: Wording = SHIPPED) -> str:
    """Render the past items, oldest first; "(empty)" when there is none."""
    texts = wording["history"]
    if not history:
        return texts["empty"]
    return "".join(_item_text(item, texts) for item in history).lstrip("\n")


def _item_text(item: HistoryItem, texts: Mapping[str, str]) -> str:
    if item.evaluation is not None:
        return texts["item"].format(solution=item.solution, evaluation=item.evaluation)
    return texts["own_item" if item.is_own else "unevaluated_item"].format(solution=item.solution)
