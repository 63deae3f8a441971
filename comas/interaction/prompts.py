"""What each role is told, by domain: one user message per turn.

The wording is ours; what each prompt asks for follows the paper's appendix. A template's
constant text is used unchanged, so the quick-start tokenizers can hold it as single tokens.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from comas.types import Domain

Template = Mapping[Domain, str]
"""A prompt for each domain, with the placeholders {question}, {discussion} (the history) and the
names of the roles whose texts it quotes."""


class HistoryItem(NamedTuple):
    """A past solution and one evaluation of it, if there is any, as later rounds see them."""

    solution: str
    evaluation: str | None
    is_own: bool = False
    """Whether the solution is of the agent who sees it, where agents are told."""


EMPTY_HISTORY = "(empty)"

OWN_ITEM = "\n\n## Your own earlier solution\n{solution}"
UNEVALUATED_ITEM = "\n\n## Earlier solution\n{solution}"
HISTORY_ITEM = UNEVALUATED_ITEM + "\n\n## Evaluation of it\n{evaluation}"

SOLUTION: Template = {
    "math": (
        "You and other experts discuss a math problem. Work on the problem step by step. "
        "Use the earlier solutions and their evaluations where they help, and do not repeat "
        "their mistakes. Put the final answer in \\boxed{{}}.\n\n"
        "# Problem\n{question}\n\n# Discussion so far\n{discussion}"
    ),
    "science": (
        "You and other experts discuss a science problem from physics, chemistry or biology. "
        "Work on the problem step by step. "
        "Use the earlier solutions and their evaluations where they help, and do not repeat "
        "their mistakes. Put the final answer in \\boxed{{}} as a decimal number without its "
        "unit.\n\n"
        "# Problem\n{question}\n\n# Discussion so far\n{discussion}"
    ),
    "coding": (
        "You and other experts discuss a programming problem. First analyse the problem and "
        "plan the program. Use the earlier solutions and their evaluations where they help, "
        "and do not repeat their mistakes. Then give the whole program in exactly one "
        "```python``` block.\n\n"
        "# Problem\n{question}\n\n# Discussion so far\n{discussion}"
    ),
}

_CRITICS_TASK: dict[Domain, str] = {
    "math": (
        "You are a strict critic. Read the solution of the math problem and find every "
        "possible mistake in it; never simply agree. For each mistake say what is wrong and "
        "why. Be short and do not retell the solution."
    ),
    "science": (
        "You are a strict critic. Read the solution of the science problem from physics, "
        "chemistry or biology and find every possible mistake in it, in the science as in the "
        "numbers; never simply agree. For each mistake say what is wrong and why. Be short and do "
        "not retell the solution."
    ),
    "coding": (
        "You are a strict critic. Read the program that answers the programming problem and "
        "look for test cases that it fails; never simply agree. List each such test case and "
        "say why the program fails it. Be short and do not retell the program."
    ),
}

_EVALUATED = (
    "\n\n# Problem\n{question}\n\n# Discussion so far\n{discussion}\n\n"
    "# Solution to evaluate\n{solution}"
)

EVALUATION: Template = {domain: task + _EVALUATED for domain, task in _CRITICS_TASK.items()}

_JUDGMENT = (
    " Then end with your judgment of the solution, correct or incorrect, between <judgment> and "
    "</judgment>, for example: The second step is wrong. <judgment>incorrect</judgment>"
)

EVALUATION_WITH_JUDGMENT: Template = {
    domain: task + _JUDGMENT + _EVALUATED for domain, task in _CRITICS_TASK.items()
}
"""The critic decides, as nobody scores."""

_RATING_STANDARD = (
    "Rate it with a whole number from 0 to 5, one point for each of these that holds: it addresses "
    "the problem; its approach can succeed; it is complete; none of its steps is wrong; its result "
    "is right. Give a short reason, then the rating between <rating> and </rating>, for example: "
    "The approach can succeed, but it stops halfway. <rating>2</rating>\n\n"
    "# Problem\n{question}\n\n# Solution\n{solution}"
)

RATING: Template = {
    "math": "You are a fair judge. Read a solution of a math problem. " + _RATING_STANDARD,
    "science": (
        "You are a fair judge. Read a solution of a science problem from physics, chemistry or "
        "biology. " + _RATING_STANDARD
    ),
    "coding": (
        "You are a fair judge. Read a program that answers a programming problem. "
        + _RATING_STANDARD
    ),
}
"""An agent rates its own solution, as self-rewarding models do (arXiv 2401.10020)."""

APPROVALS: dict[Domain, str] = {
    "math": "No mistakes.",
    "science": "No mistakes.",
    "coding": "No test case fails.",
}
"""Evaluations that find nothing, for solutions that nobody is asked to evaluate."""

_SCORING_STANDARD = (
    "Weigh whether the points of the evaluation really hold, then score the solution:\n"
    "3: the solution is right, the points of the evaluation do not hold.\n"
    "2: the solution has minor flaws that do not change its result.\n"
    "1: the evaluation identified a fatal mistake.\n"
    "Give a short reason, then the score as one integer between <score> and </score>, "
    "for example: The first point holds and makes the result wrong. <score>1</score>\n\n"
    "# Problem\n{question}\n\n# Solution\n{solution}\n\n# Evaluation\n{evaluation}"
)

SCORING: Template = {
    "math": (
        "You are a fair judge of a math discussion. Read a solution and the evaluation of it. "
        + _SCORING_STANDARD
    ),
    "science": (
        "You are a fair judge of a science discussion on physics, chemistry or biology. Read a "
        "solution and the evaluation of it. " + _SCORING_STANDARD
    ),
    "coding": (
        "You are a fair judge of a programming discussion. Read a program and the evaluation "
        "of it. " + _SCORING_STANDARD
    ),
}

_STANDARD_ALONE = (
    "Look for mistakes in it, then score it:\n"
    "3: the solution is right.\n"
    "2: the solution has minor flaws that do not change its result.\n"
    "1: the solution has a fatal mistake.\n"
    "Give a short reason, then the score as one integer between <score> and </score>, "
    "for example: The second step makes the result wrong. <score>1</score>\n\n"
    "# Problem\n{question}\n\n# Solution\n{solution}"
)

SCORING_ALONE: Template = {
    "math": "You are a fair judge of a math discussion. Read a solution. " + _STANDARD_ALONE,
    "science": (
        "You are a fair judge of a science discussion on physics, chemistry or biology. Read a "
        "solution. " + _STANDARD_ALONE
    ),
    "coding": (
        "You are a fair judge of a programming discussion. Read a program. " + _STANDARD_ALONE
    ),
}
"""The judge sees no evaluation."""


def fill(
    template: Template,
    domain: Domain,
    *,
    question: str,
    history: Sequence[HistoryItem] = (),
    **quoted: str,
) -> str:
    """The prompt of ``domain``; ``quoted`` are the texts that it may quote, by role.

    Example: ``fill(SCORING, "math", question="What is 1 + 1?", solution="2", evaluation="Right.")``
    """
    return template[domain].format(question=question, discussion=discussion_text(history), **quoted)


def discussion_text(history: Sequence[HistoryItem]) -> str:
    """Render the past items, oldest first; "(empty)" when there is none."""
    if not history:
        return EMPTY_HISTORY
    return "".join(map(_item_text, history)).lstrip("\n")


def _item_text(item: HistoryItem) -> str:
    if item.evaluation is not None:
        return HISTORY_ITEM.format(**item._asdict())
    return (OWN_ITEM if item.is_own else UNEVALUATED_ITEM).format(solution=item.solution)
