"""The questions and demonstrations of configs/smollm2.yaml."""

import json
import re
from collections import Counter

from comas.reward_formulation.interaction_reward import parse_score
from comas.verification.math import verify_math
from scripts.small_questions import FOLDER, demonstrations, problems, records


def rows_of(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


def test_the_committed_files_are_what_the_script_makes():
    for split in ("train", "validation"):
        assert rows_of(f"{split}.jsonl") == list(records(split))
    assert rows_of("cold_start.jsonl") == list(demonstrations())


def test_no_numbers_of_one_split_are_asked_about_in_another():
    """A product's two factors, for example, which also make the story of so many boxes."""
    kinds = [
        {(p.work.split()[1], *sorted(re.findall(r"\d+", p.work))) for p in problems(split)}
        for split in ("train", "validation", "demonstrated")
    ]
    assert all(kinds) and sum(map(len, kinds)) == len(set.union(*kinds))


def test_demonstrated_judges_are_blind():
    asked = {problem.question: str(problem.answer) for problem in problems("demonstrated")}
    seen: Counter[tuple[str, bool, int | None]] = Counter()
    for row in rows_of("cold_start.jsonl"):
        gold = asked[row["question"]]
        if row["role"] == "solution":
            assert verify_math(row["response"], gold) == "correct"
        if row["role"] == "scoring":
            is_right = verify_math(row["solution"], gold) == "correct"
            verdict = row["evaluation"].split()[-1]
            seen[verdict, is_right, parse_score(row["response"])] += 1
    assert set(seen.values()) == {4}  # 48 questions, 2 x 2 x 3 combinations
    assert len(seen) == 12
