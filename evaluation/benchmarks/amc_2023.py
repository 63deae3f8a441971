"""AMC 2023: the 40 problems of the AMC 12 A and B that have a whole number as their answer.

The dataset also holds those of 2022; the address of a problem tells the year. The problems were
multiple choice, and were reworded to ask for a number.
"""

from comas.data.preparation import Item, LeftOut, Row, Source
from evaluation.benchmarks.benchmark import Benchmark

YEAR = "2023_AMC"


def convert(row: Row) -> Item | LeftOut:
    """Answers are whole numbers held as floats."""
    if YEAR not in row["url"]:
        return LeftOut("it is of another year")
    if row["answer"] != int(row["answer"]):
        return LeftOut("its answer is not a whole number")
    return Item(row["problem"].strip(), str(int(row["answer"])))


AMC_2023 = Benchmark(
    name="amc-2023",
    form="math",
    source=Source(
        hub_name="AI-MO/aimo-validation-amc",
        configs=("default",),
        split="train",
        revision="69d78a4a2c840e82d69af6bc742bda09005f6316",
        licence="apache-2.0",
        columns={"problem": str, "answer": float | int, "url": str},
        num_rows=83,
    ),
    convert=convert,
)
