"""Judges an answer by reasoning_gym's ``score_answer``; loaded only within the sandbox.

Several tasks pass the answer to Python's ``eval``, some through sympy. This replaces them by
functions that read data but run no code, so that no answer can forge its verdict. Imports nothing
of ``comas``: ``reasoning_gym.py`` has the sandbox load this file by its path.
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
"""Modules that import sympy's ``parse_expr`` by name; others access it through sympy."""
_NAME = re.compile(r"[^\W\d]\w*")
_FUNCTIONS = {
    *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "pi", "Abs"),
}
"""Names longer than a letter that a formula may contain, besides its variables."""
_parse_any = sympy.parse_expr


def parse_formula(text: str, local_dict: dict[str, Any] | None = None) -> Any:
    """Do what sympy's ``parse_expr`` does, for numbers, letters, ``_FUNCTIONS`` and operators only.
    Raises ValueError for any other name, and for quotes, brackets and statements."""
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
    """Return True if the task's ``score_answer`` gives ``answer`` full marks for ``entry``, a
    Python literal."""
    return bool(create_dataset(task, **options).score_answer(answer, ast.literal_eval(entry)) >= 1)


_replace_evaluation()
