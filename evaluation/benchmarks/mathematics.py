"""Benchmarks of mathematics, and of numeric answers."""

import re

from comas.data.preparation import Item, LeftOut, Row, Source
from comas.data.preparation.record_set import is_decimal_number, with_unit
from evaluation.benchmarks.benchmark import Benchmark


def convert_gsm8k(row: Row) -> Item | LeftOut:
    """GSM8K (Cobbe et al., 2021): grade-school word problems with whole-number answers, in which
    reference solutions end with ``#### 1,200``."""
    _, mark, answer = row["answer"].rpartition("####")
    if not mark:
        return LeftOut("its solution states no final answer")
    return Item(row["question"].strip(), answer.strip().replace(",", ""))


GSM8K = Benchmark(
    name="gsm8k",
    form="math",
    source=Source(
        hub_name="openai/gsm8k",
        configs=("main",),
        split="test",
        revision="740312add88f781978c0658806c59bc2815b9866",
        licence="mit",
        columns={"question": str, "answer": str},
        num_rows=1319,
    ),
    convert=convert_gsm8k,
)


def convert_math_500(row: Row) -> Item | LeftOut:
    """MATH-500 (Lightman et al., 2023): 500 problems of the test split of MATH."""
    return Item(row["problem"].strip(), row["answer"].strip())


MATH_500 = Benchmark(
    name="math-500",
    form="math",
    source=Source(
        hub_name="HuggingFaceH4/MATH-500",
        configs=("default",),
        split="test",
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        licence=None,
        columns={"problem": str, "answer": str},
        num_rows=500,
    ),
    convert=convert_math_500,
)


def convert_scibench(row: Row) -> Item | LeftOut:
    """SciBench (Wang et al., 2024): problems from college textbooks with numeric answers. A power
    of ten in the unit, as in ``$10^{-19} \\mathrm{~N}$``, is not part of the answer."""
    answer = re.sub(r"\u2212|\\u2212", "-", row["answer_number"]).replace(",", "").strip()
    if not is_decimal_number(answer):
        return LeftOut("its answer is not a decimal number")
    return Item(row["problem_text"].strip(), answer, details=with_unit(row["unit"].strip()))


SCIBENCH = Benchmark(
    name="scibench",
    form="science",
    source=Source(
        hub_name="xw27/scibench",
        configs=("default",),
        split="train",
        revision="93931252bc1b71d495e67390235940643d926958",
        licence="mit",
        columns={"problem_text": str, "answer_number": str, "unit": str},
        num_rows=692,
    ),
    convert=convert_scibench,
)
