"""The questions and demonstrations of configs/smollm2.yaml."""

import json
import re
from typing import Any

import pytest

from scripts.small_questions import CONFIGS, LARGEST, demonstrations, problems, records

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
