"""AIME 2024: the 30 problems of AIME I and II, each with an answer from 0 to 999."""

from comas.data.preparation import Item, LeftOut, Row, Source
from evaluation.benchmarks.benchmark import Benchmark


def convert(row: Row) -> Item | LeftOut:
    """The answer may be written with leading zeros."""
    answer = str(row["answer"]).strip()
    if not answer.isdecimal():
        return LeftOut("its answer is not a whole number")
    return Item(row["problem"].strip(), str(int(answer)))


AIME_2024 = Benchmark(
    name="aime-2024",
    form="math",
    source=Source(
        hub_name="HuggingFaceH4/aime_2024",
        configs=("default",),
        split="train",
        revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
        licence=None,
        columns={"problem": str, "answer": str | int},
        num_rows=30,
    ),
    convert=convert,
)
