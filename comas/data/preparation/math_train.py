"""The training questions of MATH (Hendrycks et al., 2021), levels 4 and 5."""

from comas.data.preparation.record_set import Item, LeftOut, RecordSet, Row, Source
from comas.verification.boxed import last_plainly_boxed

LEVELS = ("Level 4", "Level 5")


def convert(row: Row) -> Item | LeftOut:
    """Take the last box of the reference solution as the gold answer."""
    if row["level"] not in LEVELS:
        return LeftOut("it is of another level than 4 and 5")
    answer = last_plainly_boxed(row["solution"])
    if answer is None:
        return LeftOut("its solution boxes no answer")
    return Item(row["problem"].strip(), answer)


MATH = RecordSet(
    name="math",
    form="math",
    source=Source(
        hub_name="EleutherAI/hendrycks_math",
        configs=(
            "algebra",
            "counting_and_probability",
            "geometry",
            "intermediate_algebra",
            "number_theory",
            "prealgebra",
            "precalculus",
        ),
        split="train",
        revision="21a5633873b6a120296cce3e2df9d5550074f4a3",
        licence="mit",
        columns={"problem": str, "level": str, "solution": str},
        num_rows=7500,
    ),
    convert=convert,
)
