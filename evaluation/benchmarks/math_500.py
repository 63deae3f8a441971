"""MATH-500 (Lightman et al., 2023): 500 problems of the test split of MATH."""

from comas.data.preparation import Item, LeftOut, Row, Source
from evaluation.benchmarks.benchmark import Benchmark


def convert(row: Row) -> Item | LeftOut:
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
    convert=convert,
)
