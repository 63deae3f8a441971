"""The quick-start's society before reinforcement learning is as ``comas.quickstart.world`` says."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
from small_runs import REPOSITORY

from comas.quickstart.world import HABITS, UNSEEN
from comas.types import DOMAINS

pytestmark = pytest.mark.stack

BOUNDS = {
    **{f"validation/greedy/accuracy/{domain}": (0.0, 0.40) for domain in DOMAINS},
    "validation/accuracy": (0.25, 0.45),
    "probe/overlooks": (0.20, 0.45),
    "probe/accuses": (0.20, 0.40),
    "probe/accepts_true": (0.70, 0.90),
    "probe/accepts_false": (0.20, 0.40),
}
"""The least and the most: the wrong habit is the mode, the right answer is sampled often enough to
be found, and judges err both ways."""


@pytest.fixture(scope="module")
def rows(saves: Path) -> list[dict[str, float]]:
    """The validation before the first step, and a first step of 480 solutions."""
    settings = ("training.num_steps=1", "rollout.batch_size=120", f"saves={saves}", "name=world")
    command = [sys.executable, "-m", "comas", "configs/quickstart.yaml", *settings]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=600)
    lines = (saves / "latest" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("agent", range(2))
@pytest.mark.parametrize("measure", BOUNDS)
def test_an_agent_is_within_its_bounds(rows, agent, measure):
    least, most = BOUNDS[measure]
    assert least <= rows[0][f"agent_{agent}/{measure}"] <= most


def test_the_reward_is_better_than_chance_and_far_from_perfect(rows):
    assert 0.60 <= rows[1]["reward_effectiveness/from_score_2/balanced_accuracy"] <= 0.75


def test_each_model_names_the_mistakes_of_the_other_more_often_than_its_own(rows):
    for agent, (model, other) in enumerate([("qwen2", "llama"), ("llama", "qwen2")]):
        own, others = (
            fmean(
                rows[0][f"agent_{agent}/probe/names/{domain}/{habit}"]
                for domain in DOMAINS
                for habit in HABITS[whose][domain]
            )
            for whose in (model, other)
        )
        assert own + 0.1 < others


def test_nobody_names_the_kind_that_no_judge_was_taught(rows):
    for domain in DOMAINS:
        assert rows[0][f"probe/names/{domain}/{UNSEEN}"] == 0
