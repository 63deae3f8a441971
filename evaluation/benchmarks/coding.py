"""Benchmarks whose answers are programs."""

import ast
from dataclasses import replace

from comas.data.preparation import Item, LeftOut, Row, Source
from comas.verification.coding import PROGRAM_LINE
from evaluation.benchmarks.benchmark import Benchmark


def convert_humaneval(row: Row) -> Item | LeftOut:
    """HumanEval (Chen et al., 2021): 164 functions to write from their signature and docstring.

    The gold answer is ``def check(candidate)`` with the tests, and its call. As in the original
    evaluation, it begins with the code before the function in the prompt, which some tests use.
    """
    prompt, entry_point = row["prompt"], row["entry_point"]
    before = _code_before(entry_point, prompt)
    if before is None:
        return LeftOut("its prompt does not define its entry point")
    return Item(
        question=f"Implement this function:\n\n```python\n{prompt.strip()}\n```",
        answer=f"{before}{row['test'].strip()}\n\ncheck({entry_point})",
    )


def _code_before(entry_point: str, prompt: str) -> str | None:
    try:
        body = ast.parse(prompt).body
    except SyntaxError:
        return None
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == entry_point:
            before = "".join(prompt.splitlines(keepends=True)[: node.lineno - 1]).strip()
            return f"{before}{PROGRAM_LINE}" if before else ""
    return None


HUMANEVAL = Benchmark(
    name="humaneval",
    form="coding",
    source=Source(
        hub_name="openai/openai_humaneval",
        configs=("openai_humaneval",),
        split="test",
        revision="7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
        licence="mit",
        columns={"prompt": str, "test": str, "entry_point": str},
        num_rows=164,
    ),
    convert=convert_humaneval,
)


def convert_mbpp(row: Row) -> Item | LeftOut:
    """MBPP (Austin et al., 2021): 500 short programs, each with three assertions. The gold answer
    is the setup code and the assertions, which the prompt shows for the names."""
    if not row["test_list"]:
        return LeftOut("it has no tests")
    assertions = "\n".join(row["test_list"])
    return Item(
        question=row["text"].strip(),
        answer=f"{row['test_setup_code'].strip()}\n{assertions}".strip(),
        details=f"The code must pass these tests:\n```python\n{assertions}\n```",
    )


MBPP = Benchmark(
    name="mbpp",
    form="coding",
    source=Source(
        hub_name="google-research-datasets/mbpp",
        configs=("full",),
        split="test",
        revision="4bb6404fdc6cacfda99d4ac4205087b89d32030c",
        licence="cc-by-4.0",
        columns={"text": str, "test_list": list, "test_setup_code": str},
        num_rows=500,
    ),
    convert=convert_mbpp,
)

MBPP_TRAIN = replace(
    MBPP, name="mbpp-train", source=replace(MBPP.source, split="train", num_rows=374)
)
"""For training on (configs/qwen.yaml): ``--only evaluation.benchmarks.coding:MBPP_TRAIN``."""
MBPP_VALIDATION = replace(
    MBPP, name="mbpp-validation", source=replace(MBPP.source, split="validation", num_rows=90)
)
