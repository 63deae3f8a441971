"""GPQA main (Rein et al., 2023): 448 questions in biology, physics and chemistry, 4 options."""

import random

from comas.data.choices import list_options
from comas.data.preparation import Item, LeftOut, Row, Source
from evaluation.benchmarks.benchmark import LETTERS, Benchmark


def convert(row: Row) -> Item | LeftOut:
    """The dataset lists the right answer first, so the options are shuffled, in an order drawn
    from the id of the question: the same in every build."""
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
        is_gated=True,
    ),
    convert=convert,
)
