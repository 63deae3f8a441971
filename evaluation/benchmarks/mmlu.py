"""MMLU (Hendrycks et al., 2021): questions on 57 subjects, 4 options in the dataset's order."""

from comas.data.choices import list_options
from comas.data.preparation import Item, LeftOut, Row, Source
from evaluation.benchmarks.benchmark import LETTERS, Benchmark


def convert(row: Row) -> Item | LeftOut:
    choices, answer = row["choices"], row["answer"]
    if len(choices) != len(LETTERS) or not 0 <= answer < len(LETTERS):
        return LeftOut("it does not have 4 options, or none of them is the answer")
    return Item(row["question"].strip(), LETTERS[answer], list_options(choices))


MMLU = Benchmark(
    name="mmlu",
    form="choice",
    source=Source(
        hub_name="cais/mmlu",
        configs=("all",),
        split="test",
        revision="c30699e8356da336a370243923dbaf21066bb9fe",
        licence="mit",
        columns={"question": str, "choices": list, "answer": int},
        num_rows=14042,
    ),
    convert=convert,
)
