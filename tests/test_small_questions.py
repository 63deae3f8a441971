"""The questions and demonstrations of configs/smollm2.yaml."""

import json
import re
from collections import Counter
from typing import Any

import pytest

from comas.reward_formulation.interaction_reward import parse_score
from comas.verification.math import verify_math
from scripts.small_questions import (
    CONFIGS,
    LARGEST,
    demonstrations,
    problems,
    records,
)

both = pytest.mark.parametrize("folder", LARGEST)


def rows_of(name: str, folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CONFIGS / folder / name).read_text().splitlines()]


@both
def test_the_committed_files_are_what_the_script_makes(folder):
    for split in ("train", "validation"):
        assert rows_of(f"{split}.jsonl", folder) == list(records(split, LARGEST[folder]))
    made = demonstrations(LARGEST[folder], by_tool=folder != "smollm2")
    assert rows_of("cold_start.jsonl", folder) == list(made)


@both
def test_no_numbers_of_one_split_are_asked_about_in_another(folder):
    """A product's two factors, for example, which also make the story of so many boxes."""
    kinds = [
        {
            (p.work.split()[1], *sorted(re.findall(r"\d+", p.work)))
            for p in problems(split, LARGEST[folder])
        }
        for split in ("train", "validation", "demonstrated")
    ]
    assert all(kinds) and sum(map(len, kinds)) == len(set.union(*kinds))


@both
def test_demonstrated_judges_are_blind(folder):
    asked = {p.question: str(p.answer) for p in problems("demonstrated", LARGEST[folder])}
    seen: Counter[tuple[str, bool, int | None]] = Counter()
    for row in rows_of("cold_start.jsonl", folder):
        gold = asked[row["question"]]
        if row["role"] == "solution":
            said = row["response"] if folder == "smollm2" else row["response"][-1]
            assert verify_math(said, gold) == "correct"
        if row["role"] == "scoring":
            is_right = verify_math(row["solution"], gold) == "correct"
            verdict = row["evaluation"].split()[-1]
            seen[verdict, is_right, parse_score(row["response"])] += 1
    assert set(seen.values()) == {4}  # 48 questions, 2 x 2 x 3 combinations
    assert len(seen) == 12
