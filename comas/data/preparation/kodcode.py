"""Medium and hard coding questions with unit tests: KodCode (Xu et al., 2025).

Uses the 10,000 of its 447,000 questions (74 MB of 2.6 GB) that its authors chose for RL.
"""

import ast
from collections.abc import Sequence

from comas.data.preparation.record_set import Item, LeftOut, RecordSet, Row, Source
from comas.verification.coding import PROGRAM_MODULE, calls_unittest_main, foreign_imports

DIFFICULTIES = ("medium", "hard")

_PYTEST_HOOKS = ("setup_module", "setup_function", "teardown_module", "teardown_function")
_NEEDS_PYTEST = LeftOut("its tests need pytest")


def convert(row: Row) -> Item | LeftOut:
    """Take the unit tests and their calls, which the prompt shows too, as the gold answer."""
    if row["gpt_difficulty"] not in DIFFICULTIES:
        return LeftOut("it is easy")
    checker = checker_from_pytest(row["test"])
    if isinstance(checker, LeftOut):
        return checker
    return Item(
        question=row["question"].strip(),
        answer=checker,
        details=f"The code must pass these unit tests:\n```python\n{checker}\n```",
        solution=row["solution"],
    )


def checker_from_pytest(test_code: str) -> str | LeftOut:
    """Turn a file of pytest functions into checker code: the functions, then their calls. Leaves
    out tests that use pytest itself (raises, approx, fixtures, parameters), which the sandbox does
    not have, and test classes."""
    # As Python's parser counts lines.
    test_code = test_code.replace("\r\n", "\n").replace("\r", "\n")
    try:
        tree = ast.parse(test_code)
    except (SyntaxError, ValueError):
        return LeftOut("its tests are not Python")
    kept = [node for node in tree.body if not _is_dropped(node)]
    if not any(isinstance(p, ast.Name) and p.id == "pytest" for n in kept for p in ast.walk(n)):
        kept = [node for node in kept if ast.unparse(node) != "import pytest"]
    tests = [
        node
        for node in kept
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name.lower().startswith("test")
    ]
    if reason := _unfit(kept, tests):
        return reason
    calls = "\n".join(f"{name}()" for name in dict.fromkeys(test.name for test in tests))
    return f"{_source_of(kept, test_code)}\n\n{calls}"


def _unfit(kept: Sequence[ast.stmt], tests: Sequence[ast.stmt]) -> LeftOut | None:
    if not tests:
        return LeftOut("it has no test function")
    for test in tests:
        if not isinstance(test, ast.FunctionDef):
            return LeftOut("its tests are methods of a class, or coroutines")
        if test.decorator_list or ast.unparse(test.args):
            return _NEEDS_PYTEST
    if calls_unittest_main(ast.Module([*kept], [])):
        return LeftOut("its tests run by unittest.main")
    foreign = foreign_imports(ast.Module([*kept], []))
    hooks = {node.name for node in kept if isinstance(node, ast.FunctionDef)} & {*_PYTEST_HOOKS}
    if "pytest" in foreign or hooks:
        return _NEEDS_PYTEST
    return LeftOut("its tests import more than the standard library") if foreign else None


def _is_dropped(node: ast.stmt) -> bool:
    """True if ``node`` imports the program's names, which are globals, or is the main guard."""
    if isinstance(node, ast.ImportFrom):
        is_program = node.module == PROGRAM_MODULE and node.level == 0
        return is_program and not any(alias.asname for alias in node.names)
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def _source_of(kept: list[ast.stmt], code: str) -> str:
    """Return the source of the kept statements, with its comments if no line is shared."""
    dropped_lines = _line_numbers(ast.parse(code).body) - _line_numbers(kept)
    lines = [line for number, line in enumerate(code.split("\n"), 1) if number not in dropped_lines]
    source = "\n".join(lines).strip()
    wanted = ast.Module(kept, [])
    return source if ast.dump(ast.parse(source)) == ast.dump(wanted) else ast.unparse(wanted)


def _line_numbers(nodes: list[ast.stmt]) -> set[int]:
    return {n for node in nodes for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


KODCODE = RecordSet(
    name="kodcode",
    form="coding",
    source=Source(
        hub_name="KodCode/KodCode-Light-RL-10K",
        configs=("default",),
        split="train",
        revision="dcf78a8bbba9a613b596ce993c4921a38687dfcc",
        licence="cc-by-nc-4.0",
        columns={"question": str, "solution": str, "test": str, "gpt_difficulty": str},
        num_rows=10000,
    ),
    convert=convert,
)
