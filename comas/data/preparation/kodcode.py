"""Coding questions of medium and hard difficulty, with unit tests: KodCode (Xu et al., 2025).

Of the 447,000 questions of KodCode this takes the 10,000 that its authors chose for training by
reinforcement: 74 MB to download instead of 2.6 GB.
"""

from comas.data.preparation.checkers import checker_from_pytest
from comas.data.preparation.record_set import Item, LeftOut, RecordSet, Row
from comas.data.preparation.source import Source

DIFFICULTIES = ("medium", "hard")


def convert(row: Row) -> Item | LeftOut:
    """The gold answer is the unit tests and their calls, which the prompt shows as well."""
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
