"""A control for coding: a solution is rewarded if it contains a program, right or wrong.

Source: public runs of 1.5 B models, in which learning this form was most of what they gained
without labels. Not yet run.
"""

import ast
from collections.abc import Sequence

from comas.reward_formulation import RewardScheme
from comas.reward_formulation.interaction_reward import parse_score, rewards_of_score
from comas.types import Discussion, RewardedDiscussion, Rewards, Turn
from comas.verification.coding import last_python_block


def program_form_reward(discussions: Sequence[Discussion]) -> Rewards:
    """Reward a solution with 1 if its last fenced program parses and defines a function that the
    question's own block calls or defines, else 0; a scoring as in the paper, 0 or -1 by its format.
    Evaluations are not trained.

    Example: asked to pass ``assert add(1, 2) == 3``, ``def add(a, b): return 0`` gets 1.
    """
    return Rewards(
        [RewardedDiscussion(d, tuple(_reward(d, turn) for turn in d.turns)) for d in discussions]
    )


def _reward(discussion: Discussion, turn: Turn) -> float | None:
    if turn.role == "scoring":
        return rewards_of_score(parse_score(turn.text)).scoring
    if turn.role != "solution":
        return None
    asked, program = _nodes(discussion.question.text), _nodes(turn.text)
    called = {
        node.func.id
        for node in asked
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return float(bool((called | _functions(asked)) & _functions(program)))


def _functions(nodes: Sequence[ast.AST]) -> set[str]:
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def _nodes(text: str) -> list[ast.AST]:
    """Return the syntax nodes of the last fenced program in ``text``; empty if none parses."""
    try:
        return list(ast.walk(ast.parse(last_python_block(text) or "")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


program_form = RewardScheme(program_form_reward, pays_some=True)
