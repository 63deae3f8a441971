"""Benchmarks whose answers are mathematics."""

from comas.data.preparation import Item, LeftOut, Row, Source
from evaluation.benchmarks.benchmark import Benchmark


def convert_gsm8k(row: Row) -> Item | LeftOut:
    """GSM8K (Cobbe et al., 2021): grade-school word problems, each with a whole-number answer.

    The reference solution ends with ``#### 1,200``.
    """
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
    convert=convert_gsm8k,
)


def convert_math_500(row: Row) -> Item | LeftOut:
    """MATH-500 (Lightman et al., 2023): 500 problems of the test split of MATH."""
    return Item(row["problem"].strip(), row["answer"].strip())


MATH_500 = Benchmark(
    name="math-500",
    form="math",
    source=Source(
        hub_name="HuggingFaceH4/MATH-500",
        configs=("default",),
        split="test",
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        licence=None,
        columns={"problem": str, "answer": str},
        num_rows=500,
    ),
    convert=convert_math_500,
)


def convert_aime_2024(row: Row) -> Item | LeftOut:
    """AIME 2024: the 30 problems of AIME I and II, each with an answer from 0 to 999.

    The answer may be written with leading zeros.
    """
    answer = str(row["answer"]).strip()
    if not answer.isdecimal():
        return LeftOut("its answer is not a whole number")
    return Item(row["problem"].strip(), str(int(answer)))


AIME_2024 = Benchmark(
    name="aime-2024",
    form="math",
    source=Source(
        hub_name="HuggingFaceH4/aime_2024",
        configs=("default",),
        split="train",
        revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
        licence=None,
        columns={"problem": str, "answer": str | int},
        num_rows=30,
    ),
    convert=convert_aime_2024,
)


def convert_amc_2023(row: Row) -> Item | LeftOut:
    """AMC 2023: the 40 problems of the AMC 12 A and B that have a whole number as their answer.

    The dataset also holds those of 2022; the address of a problem tells the year. The problems were
    multiple choice, and were reworded to ask for a number, which is held as a float.
    """
    if "2023_AMC" not in row["url"]:
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
    convert=convert_amc_2023,
)
