"""Small made-up copies of every dataset, in the layouts of the hub, with its column names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from small_runs import write_records
from tables import case_file

from comas.data.preparation.math_train import MATH

Rows = Sequence[Mapping[str, Any]]

OBJECTS = ("kites", "lamps", "boats", "drums", "coins", "vases", "ropes", "bells")


def write_parquet(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Dataset.from_list(list(map(dict, rows))).to_parquet(path)


def write_card(folder: Path, files: Mapping[str, Mapping[str, str]]) -> None:
    """Write README.md as on the hub; ``files``: config -> split -> files."""
    lines = ["---", "license: mit", "configs:"]
    for config, splits in files.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        for split, pattern in splits.items():
            lines += [f"  - split: {split}", f"    path: {pattern}"]
    (folder / "README.md").write_text("\n".join([*lines, "---", "# A dataset", ""]))


def write_all(folder: Path) -> None:
    """Write copies of the training sets and the benchmarks to ``folder``."""
    for number, config in enumerate(MATH.source.configs):
        rows = [math_row(number * 10 + k) for k in range(6)]
        write_parquet(folder / MATH.source.hub_name / config / "train-0.parquet", rows)
    files = {config: {"train": f"{config}/train-*"} for config in MATH.source.configs}
    write_card(folder / MATH.source.hub_name, files)
    for name, make, number in (
        ("KodCode/KodCode-Light-RL-10K", kodcode_row, 16),
        ("TIGER-Lab/WebInstruct-verified", webinstruct_row, 24),
    ):
        rows = [make(k) for k in range(number)]
        write_parquet(folder / name / "data/train-00000-of-00001.parquet", rows)
    for path, row in JSON_BENCHMARKS.items():
        write_records(folder / path, [row])
    for name, (config, split, rows) in BENCHMARKS.items():
        write_parquet(folder / name / config / f"{split}-00000-of-00001.parquet", rows)
        write_card(folder / name, {config: {split: f"{config}/{split}-*"}})


def math_row(number: int) -> dict[str, Any]:
    thing = OBJECTS[number % len(OBJECTS)]
    return {
        "problem": f"A shop packs {number + 3} {thing} into crates of 7. Over {number + 11} days, "
        f"how many {thing} does it pack when one day makes {number + 2} crates?",
        "level": f"Level {3 + number % 3}",
        "type": "Algebra",
        "solution": f"First $\\boxed{{1}}$, then $\\boxed{{\\frac{{{number + 5}}}{{7}}}}$.",
    }


def kodcode_row(number: int) -> dict[str, Any]:
    """Even ones are easy; the reference solution of number 3 fails its own test."""
    return {
        "style": "instruct",
        "question_id": f"Prefill_{number}",
        "question": f"Write `add_{number}(x)`, which adds {number} to a whole number.",
        "solution": f"def add_{number}(x):\n    return x + {number + (number == 3)}\n",
        "test": f"from solution import add_{number}\n\n"
        f"def test_of_zero():\n    assert add_{number}(0) == {number}\n\n"
        f"def test_of_ten():\n    # with a comment\n    assert add_{number}(10) == {number + 10}\n",
        "test_info": [{"function_name": f"add_{number}", "parameter_list": "(x)"}],
        "gpt_difficulty": "easy" if number % 2 == 0 else "hard" if number % 3 else "medium",
        "gpt_pass_percentage": 1.0,
    }


def webinstruct_row(number: int) -> dict[str, Any]:
    return {
        "id": f"{number}",
        "question": f"A cart of {number + 2} kg is pulled with {number + 20} N along a smooth "
        f"track of {number + 31} m that rises by {number + 1} cm. How fast is it at the end?",
        "answer": f"{number + 1}.5 m/s",
        "answer_type": "Float",
        "category": ("Physics", "Chemistry", "Biology", "Economics")[number % 4],
        "difficulty": "University",
    }


JSON_BENCHMARKS = case_file("local_copies")["JSON_BENCHMARKS"]
"""File -> its only row."""
BENCHMARKS: dict[str, tuple[str, str, Rows]] = case_file("local_copies")["BENCHMARKS"]
"""Dataset -> config, split and its rows."""
