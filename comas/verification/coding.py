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

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.fence import fence

from comas.verification.forms import Verdict
from comas.verification.sandbox import Isolation, Limits, Sandbox

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
    """Return the code of the last closed ```` ```python ```` block; None if there is none.

    Blocks follow CommonMark, also in lists and quotations, but may be indented to any depth. Of
    several the last counts, since a later one corrects an earlier.
    """
    num_lines = response.count("\n") + 1
    blocks = [
        token.content
        for token in _markdown().parse(response + "\n")
        if token.type == "fence"
        and token.map is not None
        and token.info.lower().split()[:1] == ["python"]
        # Closed: lines follow, or the last line is not part of the content.
        and (
            token.map[1] < num_lines or token.map[1] - token.map[0] == token.content.count("\n") + 2
        )
    ]
    return blocks[-1] if blocks else None


@cache
def _markdown() -> MarkdownIt:
    """Return a parser of CommonMark's fences, lists and quotations, except that a fence may be
    indented by more than three spaces and follow any line."""
    rules = ["html_block", "lheading", "reference", "inline", "text_join"]
    markdown = MarkdownIt("commonmark").disable(rules)
    markdown.block.ruler.at("code", _indented_fence)
    markdown.block.ruler.at("paragraph", _line_of_text)
    return markdown


def _indented_fence(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a fence indented by four spaces or more, as if in a list."""
    if not state.is_code_block(start):
        return False
    depth, state.blkIndent = state.blkIndent, state.sCount[start]
    try:
        return fence(state, start, end, silent)
    finally:
        state.blkIndent = depth


def _line_of_text(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    state.line = start + 1
    return True


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
