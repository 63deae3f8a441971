"""MedQA (Jin et al., 2020): questions from the United States medical licensing exam, 4 options."""

from comas.data.choices import list_options
from comas.data.preparation import Item, LeftOut, Row, Source
from evaluation.benchmarks.benchmark import LETTERS, Benchmark


def convert(row: Row) -> Item | LeftOut:
    options, answer = row["options"], row["answer_idx"].strip()
    if sorted(options) != sorted(LETTERS) or answer not in options:
        return LeftOut("it does not have the options A to D, or none of them is the answer")
    listed = list_options([options[letter] for letter in LETTERS])
    return Item(row["question"].strip(), answer, listed)


MEDQA = Benchmark(
    name="medqa",
    form="choice",
    source=Source(
        hub_name="GBaker/MedQA-USMLE-4-options",
        configs=("default",),
        split="test",
        revision="0fb93dd23a7339b6dcd27e241cb9b5eca62d4d18",
        licence="cc-by-4.0",
        columns={"question": str, "options": dict, "answer_idx": str},
        num_rows=1273,
    ),
    convert=convert,
)
