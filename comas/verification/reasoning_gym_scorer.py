"""Judges an answer by reasoning_gym's ``score_answer``; it is loaded within the sandbox alone.

Several of these functions pass the answer to Python's ``eval``, some through sympy. Here they get
one that reads data, and none that runs code, lest an answer writes its own verdict. Nothing of
``comas`` is imported: ``reasoning_gym.py`` beside it names this file to the sandbox.
"""

import ast
import importlib
import re
from typing import Any

import sympy
from reasoning_gym.factory import create_dataset

EVALUATING = (
    *("algorithmic.binary_matrix", "algorithmic.number_sorting", "algorithmic.spiral_matrix"),
    *("algorithmic.string_insertion", "games.n_queens"),
)
"""Modules of reasoning_gym that call ``eval`` on answers."""
PARSING = ("games.countdown", "games.puzzle24")
"""Those that have sympy's ``parse_expr`` under a name of their own; others ask sympy for it."""
_NAME = re.compile(r"[^\W\d]\w*")
_FUNCTIONS = {
    *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "pi", "Abs"),
}
"""Names of more than a letter that a formula may hold, beside its variables."""
_parse_any = sympy.parse_expr


def parse_formula(text: str, local_dict: dict[str, Any] | None = None) -> Any:
    """sympy's ``parse_expr`` of a text that holds numbers, letters, ``_FUNCTIONS`` and operators.

    Raises ValueError on any other name, and on quotes, brackets and further statements.
    """
    names = {name for name in _NAME.findall(text) if len(name) > 1} - _FUNCTIONS
    if names - set(local_dict or ()) or not re.fullmatch(r"[\w\s+\-*/^().,]*", text, re.ASCII):
        raise ValueError("not a formula")
    return _parse_any(text, local_dict=local_dict)


def _replace_evaluation() -> None:
    for name in EVALUATING:
        vars(importlib.import_module(f"reasoning_gym.{name}"))["eval"] = ast.literal_eval
    for name in PARSING:
        vars(importlib.import_module(f"reasoning_gym.{name}"))["parse_expr"] = parse_formula
    sympy.parse_expr = parse_formula


def is_right(task: str, options: dict[str, Any], entry: str, answer: str) -> bool:
    """True if a task's own ``score_answer`` gives ``answer`` the whole point for ``entry``, which
    is a Python literal."""
    dataset = create_dataset(task, **options)
    return bool(dataset.score_answer(answer, ast.literal_eval(entry)) >= 1)


_replace_evaluation()
