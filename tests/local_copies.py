"""Small made-up copies of every dataset, in the layouts of the hub, with its column names."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from small_runs import write_records

from comas.data.preparation.math_train import MATH

Rows = Sequence[Mapping[str, Any]]

MATH_LEVELS = ("Level 3", "Level 4", "Level 5")
OBJECTS = ("kites", "lamps", "boats", "drums", "coins", "vases", "ropes", "bells")


def write_parquet(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Dataset.from_list(list(map(dict, rows))).to_parquet(path)


def write_csv(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_card(folder: Path, files: Mapping[str, Mapping[str, str]]) -> None:
    """README.md as on the hub: ``files`` says config -> split -> files."""
    lines = ["---", "license: mit", "configs:"]
    for config, splits in files.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        for split, pattern in splits.items():
            lines += [f"  - split: {split}", f"    path: {pattern}"]
    (folder / "README.md").write_text("\n".join([*lines, "---", "# A dataset", ""]))


def write_all(folder: Path) -> None:
    """Copies of the training sets, and of the benchmarks that these tests build, in ``folder``."""
    write_training_copies(folder)
    write_math_benchmarks(folder)
    write_coding_benchmarks(folder)
    write_choice_benchmarks(folder)


# ---------------------------------------------------------------- training


def write_training_copies(folder: Path) -> None:
    root = folder / "EleutherAI/hendrycks_math"
    for number, config in enumerate(MATH.source.configs):
        rows = [math_row(number * 10 + k) for k in range(6)]
        write_parquet(root / config / "train-00000-of-00001.parquet", rows)
        write_parquet(root / config / "test-00000-of-00001.parquet", rows[:1])
    names = {"train": "{}/train-*", "test": "{}/test-*"}
    write_card(
        root,
        {
            config: {split: pattern.format(config) for split, pattern in names.items()}
            for config in MATH.source.configs
        },
    )
    write_parquet(
        folder / "KodCode/KodCode-Light-RL-10K/data/train-00000-of-00001.parquet",
        [kodcode_row(number) for number in range(16)],
    )
    write_parquet(
        folder / "TIGER-Lab/WebInstruct-verified/data/train-00000-of-00001.parquet",
        [webinstruct_row(number) for number in range(24)],
    )


def math_row(number: int) -> dict[str, Any]:
    thing = OBJECTS[number % len(OBJECTS)]
    return {
        "problem": f"A shop packs {number + 3} {thing} into crates of 7. Over {number + 11} days, "
        f"how many {thing} does it pack when one day makes {number + 2} crates?",
        "level": MATH_LEVELS[number % 3],
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


# ---------------------------------------------------------------- benchmarks


def write_math_benchmarks(folder: Path) -> None:
    gsm8k = folder / "openai/gsm8k"
    write_parquet(
        gsm8k / "main/test-00000-of-00001.parquet",
        [{"question": "Ann has 2 pens and buys 3. How many?", "answer": "2 + 3 = 5\n#### 5"}],
    )
    write_parquet(
        gsm8k / "socratic/test-00000-of-00001.parquet", [{"question": "?", "answer": "#### 0"}]
    )
    write_card(gsm8k, {name: {"test": f"{name}/test-*"} for name in ("main", "socratic")})
    write_records(
        folder / "HuggingFaceH4/MATH-500/test.jsonl",
        [
            {
                "problem": "What is $2\\pi$ halved?",
                "solution": "\\boxed{\\pi}",
                "answer": "\\pi",
                "subject": "Algebra",
                "level": 1,
                "unique_id": "test/algebra/1.json",
            }
        ],
    )
    write_records(
        folder / "xw27/scibench/atkins.json",
        [{"problem_text": "Find p.", "answer_number": " -194", "unit": "$\\mathrm{~J}$ "}],
    )


def write_coding_benchmarks(folder: Path) -> None:
    humaneval = folder / "openai/openai_humaneval"
    write_parquet(
        humaneval / "openai_humaneval/test-00000-of-00001.parquet",
        [
            {
                "task_id": "HumanEval/0",
                "prompt": 'def double(x):\n    """Twice x."""\n',
                "canonical_solution": "    return 2 * x\n",
                "test": "\n\ndef check(candidate):\n    assert candidate(2) == 4\n",
                "entry_point": "double",
            }
        ],
    )
    write_card(humaneval, {"openai_humaneval": {"test": "openai_humaneval/test-*"}})
    mbpp = folder / "google-research-datasets/mbpp"
    for config, column in (("full", "text"), ("sanitized", "prompt")):
        write_parquet(
            mbpp / config / "test-00000-of-00001.parquet",
            [
                {
                    "task_id": 11,
                    column: "Write a function to square a number.",
                    "code": "def square(x): return x * x",
                    "test_list": ["assert square(3) == 9", "assert square(-2) == 4"],
                    "test_setup_code": "",
                }
            ],
        )
    write_card(mbpp, {name: {"test": f"{name}/test-*"} for name in ("full", "sanitized")})


def write_choice_benchmarks(folder: Path) -> None:
    gpqa = folder / "Idavidrein/gpqa"
    for name in ("gpqa_main", "gpqa_diamond"):
        write_csv(
            gpqa / f"{name}.csv",
            [
                {
                    "Record ID": f"rec{name}{number}",
                    "Question": f"Which gas number {number} is lightest?",
                    "Correct Answer": "hydrogen ",
                    "Incorrect Answer 1": "helium",
                    "Incorrect Answer 2": "neon",
                    "Incorrect Answer 3": "argon",
                }
                for number in range(4)
            ],
        )
    write_card(gpqa, {name: {"train": f"{name}.csv"} for name in ("gpqa_main", "gpqa_diamond")})
    mmlu = folder / "cais/mmlu"
    write_parquet(
        mmlu / "all/test-00000-of-00001.parquet",
        [{"question": "2 + 2?", "subject": "sums", "choices": list("3456"), "answer": 1}],
    )
    write_card(mmlu, {"all": {"test": "all/test-*"}})
