"""GSM8K (Cobbe et al., 2021): grade-school word problems, each with a whole-number answer."""

from comas.data.preparation import Item, LeftOut, Row, Source
from evaluation.benchmarks.benchmark import Benchmark


def convert(row: Row) -> Item | LeftOut:
    """The reference solution ends with ``#### 1,200``."""
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
    convert=convert,
)
