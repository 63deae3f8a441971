"""SciBench (Wang et al., 2024): problems from college textbooks, each with a numeric answer."""

from comas.data.preparation import Item, LeftOut, Row, Source
from comas.data.preparation.record_set import is_decimal_number, with_unit
from evaluation.benchmarks.benchmark import Benchmark


def convert(row: Row) -> Item | LeftOut:
    """A power of ten in the unit, as in ``$10^{-19} \\mathrm{~N}$``, belongs to the unit and not
    to the answer."""
    answer = row["answer_number"].replace("\\u2212", "-").replace(",", "").strip()
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
    convert=convert,
)
