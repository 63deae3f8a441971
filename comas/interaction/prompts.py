"""The prompts of each role, by domain: one user message per turn.

The texts are in ``prompts.yaml`` and, for domains beyond the paper's, ``further_prompts.yaml``;
``comas.interaction.wording`` reads a user's own. The constant parts of a prompt are used unchanged,
so that the quick-start's tokenizers can hold them as single tokens.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from comas.types import Domain

SHIPPED_FILE = Path(__file__).parent / "prompts.yaml"
FURTHER_FILE = Path(__file__).parent / "further_prompts.yaml"

Wording = Mapping[str, Mapping[str, str]]
"""Section -> key -> text. A section holds a prompt by domain, or the parts of the history. Prompts
may quote {question}, {discussion} (the history) and the turns above, by the names of their roles.
"""
Template = str | Mapping[Domain, str]
"""A prompt by domain: the name of a section, or a plug-in's own texts."""


_paper, _further = (yaml.safe_load(file.read_text()) for file in (SHIPPED_FILE, FURTHER_FILE))
SHIPPED: Wording = {name: {**texts, **_further.get(name, {})} for name, texts in _paper.items()}

SOLUTION, EVALUATION, SCORING = "solution", "evaluation", "scoring"
EVALUATION_WITH_JUDGMENT = "evaluation_with_judgment"
"""The evaluator also judges, as nobody scores."""
SCORING_ALONE = "scoring_alone"
"""The scorer sees no evaluation."""
RATING = "rating"
"""An agent rates its own solution, as self-rewarding models do (arXiv 2401.10020)."""

APPROVALS: dict[Domain, str] = {
    "math": "No mistakes.",
    "science": "No mistakes.",
    "coding": "No test case fails.",
    "choice": "No mistakes.",
    "reasoning": "No mistakes.",
}
"""Evaluations that find no mistake."""


class HistoryItem(NamedTuple):
    """A past solution and one evaluation of it, if any, as later rounds see them."""

    solution: str
    evaluation: str | None
    is_own: bool = False
    """True to tell the agent that the solution is its own."""


def fill(
    template: Template,
    domain: Domain,
    *,
    question: str,
    history: Sequence[HistoryItem] = (),
    wording: Wording = SHIPPED,
    **quoted: str,
) -> str:
    """Return the prompt of ``domain``; ``quoted`` maps roles to the texts that it may quote.

    Example: ``fill(SCORING, "math", question="What is 1 + 1?", solution="2", evaluation="Right.")``
    """
    texts = wording[template] if isinstance(template, str) else template
    discussion = discussion_text(history, wording)
    return texts[domain].format(question=question, discussion=discussion, **quoted)


def discussion_text(history: Sequence[HistoryItem], wording: Wording = SHIPPED) -> str:
    """Render the history, oldest first; "(empty)" when there is none."""
    texts = wording["history"]
    if not history:
        return texts["empty"]
    return "".join(_item_text(item, texts) for item in history).lstrip("\n")


def _item_text(item: HistoryItem, texts: Mapping[str, str]) -> str:
    if item.evaluation is not None:
        return texts["item"].format(solution=item.solution, evaluation=item.evaluation)
    return texts["own_item" if item.is_own else "unevaluated_item"].format(solution=item.solution)
