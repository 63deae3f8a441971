"""Coding: runs a fenced python block of the response with the question's checker code, sandboxed.

``verify_coding`` takes the last block, and calls it from a checker that it cannot touch.
``verify_coding_published`` is the grader of the published tables, faults included: any block
counts, and shares one process and namespace with its tests, so that it may pass by patching a
builtin or by an always-true ``__eq__``.
"""

import ast
import atexit
import builtins
import keyword
import re
import symtable
import sys
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path

from comas.verification.forms import Verdict
from comas.verification.sandbox import Isolation, Limits, Sandbox

_FENCE = re.compile(
    r"(?P<before>[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*)(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)"
)
_PUBLISHED_BLOCK = re.compile(r"```python\s*\n(.*?)```", re.DOTALL)

PROGRAM_MODULE = "solution"
"""The module from which a checker may import the program, whose names are also globals."""

PROGRAM_LINE = "\n\n# Then comes the program.\n\n"
"""Checker code above this line also runs before the program."""

isolation: ContextVar[Isolation] = ContextVar("isolation", default="allow_degraded")
"""How this process's sandbox isolates programs; set it before the first one."""

_STANDARD_NAMES = frozenset(dir(builtins)) | sys.stdlib_module_names


def verify_coding(response: str, gold: str) -> Verdict:
    """Judge whether the program in ``response`` passes the checker code ``gold``.

    ``gold`` must raise if the program is wrong. It sees the program's names as globals and in
    the module ``solution``. A program that exceeds its limits is wrong.

    Raises ValueError if the checker itself cannot run, or exchanges more than literals with the
    program (``LiteralsError``); SandboxError if the sandbox fails.
    """
    may_shadow = examine_checker(gold)
    program = last_python_block(response)
    if program is None:
        return "unanswered"
    before, line, _ = gold.partition(PROGRAM_LINE)
    if line and "__future__" not in program:  # allowed only at the top of a program
        program = f"{before}\n\n{program}"
    passed = process_sandbox().run(program, checker=gold, names_may_shadow=may_shadow)
    return "correct" if passed else "wrong"


def verify_coding_published(response: str, gold: str) -> Verdict:
    """Judge whether any fenced python block, with ``gold`` appended, runs to its end. The published
    limit of 3 s is CPU time here. Raises what ``verify_coding`` does."""
    examine_checker(gold)
    blocks = dict.fromkeys(_PUBLISHED_BLOCK.findall(response))
    if not blocks:
        return "unanswered"
    passed = any(process_sandbox().run(f"{block}\n{gold}", checker="") for block in blocks)
    return "correct" if passed else "wrong"


def last_python_block(response: str) -> str | None:
    """Return the code of the last closed ```` ```python ```` block, which may be indented, quoted
    or in a list; None if there is none. The last one corrects earlier ones."""
    program, opening = None, None
    code: list[str] = []
    for line in re.split(r"\r\n?|\n", response):
        fence = _FENCE.fullmatch(line)
        if opening is None:
            opening, code = fence, []
        elif fence is not None and _closes(fence, opening):
            if opening["info"].lower().split()[:1] == ["python"]:
                program = "".join(code)
            opening = None
        else:
            before = opening["before"]
            indentation = re.compile(rf"{re.escape(before)}|[ \t>]{{0,{len(before)}}}")
            code.append(indentation.sub("", line, count=1) + "\n")
    return program


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    """Return True if a fence ends the block; one that is indented by four more columns is code."""
    depth, own = (len(each["before"].expandtabs(4)) for each in (opening, fence))
    return (
        own < depth + 4
        and fence["marks"].startswith(opening["marks"])
        and not fence["info"].strip()
    )


@lru_cache(maxsize=1024)
def examine_checker(gold: str) -> bool:
    """Return True if the program's names should come before builtins and standard modules: the
    checker uses no other name of the program, as in ``assert sum(10, 15) == 6``.

    Raises ValueError if the checker is not Python, asserts a tuple, imports modules that the
    sandbox lacks, or calls ``unittest.main``.
    """
    try:
        tree = ast.parse(gold, filename="<checker>")
        compile(tree, "<checker>", "exec")  # finds a return outside a function
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the checker code is not Python: {error}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Tuple) and node.test.elts:
            raise ValueError(
                f"the checker code asserts a tuple in line {node.lineno}, which is always true: "
                "write 'assert TEST, MESSAGE' without parentheses"
            )
    if foreign := foreign_imports(tree):
        raise ValueError(
            f"the checker code imports {', '.join(sorted(foreign))}, but the sandbox holds "
            f"Python's standard library only (and the program, as {PROGRAM_MODULE!r})"
        )
    if calls_unittest_main(tree):
        raise ValueError(
            "the checker code calls unittest.main(), which looks for tests elsewhere and always "
            "exits; call the tests, or run them by unittest.TextTestRunner and assert that the "
            "result was successful"
        )
    return PROGRAM_MODULE not in _imported(tree) and _free_names(gold) <= _STANDARD_NAMES


def wrong_programs(gold: str) -> tuple[str, str]:
    """Two responses that define every name of the checker as a function that ignores its arguments
    and returns None, or a text. A checker that passes both cannot tell right from wrong."""
    names = sorted({*re.findall(r"\b(?!__)[^\W\d]\w*", gold)} - _STANDARD_NAMES - {*keyword.kwlist})
    bodies = ("return None", "return 'wrong'")
    functions = ("\n".join(f"def {name}(*_, **__): {body}" for name in names) for body in bodies)
    none, text = (f"```python\n{code}\n```" for code in functions)
    return none, text


def foreign_imports(tree: ast.AST) -> set[str]:
    """Imported top-level modules other than the standard library's and the program."""
    return _imported(tree) - sys.stdlib_module_names - {PROGRAM_MODULE}


def calls_unittest_main(tree: ast.AST) -> bool:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(ast.unparse(function) == "unittest.main" for function in calls)


def _imported(tree: ast.AST) -> set[str]:
    """Imported top-level modules; relative ones begin with their dots."""
    modules: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(aliases):
                modules += [alias.name for alias in aliases]
            case ast.ImportFrom(module, _, level):
                modules.append("." * (level or 0) + (module or ""))
    return {module.split(".")[0] or module for module in modules}


def _free_names(code: str) -> set[str]:
    """Return names that the code uses but never binds."""
    used, bound = set(), {"__class__"}  # implicitly used by calls of super()
    tables = [symtable.symtable(code, "<checker>", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_referenced():
                used.add(symbol.get_name())
            if symbol.is_assigned() or symbol.is_parameter() or symbol.is_imported():
                bound.add(symbol.get_name())
    return used - bound


@cache
def process_sandbox(limits: Limits | None = None, *, preload: Path | None = None) -> Sandbox:
    """Return this process's sandbox with these limits, which starts with its first program."""
    sandbox = Sandbox(limits, isolation=isolation.get(), preload=preload)
    atexit.register(sandbox.close)
    return sandbox
