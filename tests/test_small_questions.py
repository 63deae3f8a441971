"""The questions and demonstrations of configs/smollm2.yaml."""

import json
import re
from typing import Any

from scripts.small_questions import CONFIGS, demonstrations, problems, records


def rows_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CONFIGS / "smollm2" / name).read_text().splitlines()]


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
