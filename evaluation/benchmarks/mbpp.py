"""MBPP (Austin et al., 2021): 500 short programs, each with three assertions."""

from comas.data.preparation import Item, LeftOut, Row, Source
from evaluation.benchmarks.benchmark import Benchmark


def convert(row: Row) -> Item | LeftOut:
    """The gold answer is the setup code and the assertions. The prompt shows the assertions, as
    only they tell the name to use."""
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
    convert=convert,
)
