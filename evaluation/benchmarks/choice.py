"""Multiple-choice benchmarks, with 4 options each."""

import random

from comas.data.choices import list_options
from comas.data.preparation import Item, LeftOut, Row, Source
from evaluation.benchmarks.benchmark import Benchmark

LETTERS = "ABCD"


def convert_mmlu(row: Row) -> Item | LeftOut:
    """MMLU (Hendrycks et al., 2021): questions on 57 subjects, 4 options in the dataset's order."""
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
    convert=convert_mmlu,
)


def convert_gpqa(row: Row) -> Item | LeftOut:
    """GPQA main (Rein et al., 2023): 448 questions in biology, physics and chemistry, 4 options.

    The dataset lists the right answer first, so options are shuffled, seeded by the question's id.
    """
    right = row["Correct Answer"].strip()
    options = [right, *(row[f"Incorrect Answer {number}"].strip() for number in (1, 2, 3))]
    random.Random(f"gpqa/{row['Record ID']}").shuffle(options)
    return Item(row["Question"].strip(), LETTERS[options.index(right)], list_options(options))


GPQA = Benchmark(
    name="gpqa",
    form="choice",
    source=Source(
        hub_name="Idavidrein/gpqa",
        configs=("gpqa_main",),
        split="train",
        revision="633f5ee89ab8ad4522a9f850766b73f62147ffdd",
        licence="cc-by-4.0",
        columns={
            "Record ID": str,
            "Question": str,
            "Correct Answer": str,
            "Incorrect Answer 1": str,
            "Incorrect Answer 2": str,
            "Incorrect Answer 3": str,
        },
        num_rows=448,
    ),
    convert=convert_gpqa,
)
