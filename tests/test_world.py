"""The quick-start's society before reinforcement learning is as ``comas.quickstart.world`` says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

from comas.quickstart.world import HABITS, UNSEEN
from comas.types import DOMAINS

pytestmark = pytest.mark.stack

REPOSITORY = Path(__file__).parents[1]
AGENTS = range(2)
BOUNDS = {
    "greedy accuracy": (0.0, 0.40),
    "sampled accuracy": (0.25, 0.45),
    "overlooks": (0.20, 0.45),
    "accuses": (0.20, 0.40),
    "accepts_true": (0.70, 0.90),
    "accepts_false": (0.20, 0.40),
    "balanced accuracy of the reward": (0.60, 0.75),
}
"""The least and the most: greedy accuracy of each agent in each domain, sampled accuracy and judges
of each agent over all domains, the reward over the discussions of the first step."""


@pytest.fixture(scope="module")
def rows(saves: Path) -> list[dict[str, float]]:
    """The validation before the first step, and a first step of 480 solutions."""
    settings = ("training.num_steps=1", "rollout.batch_size=120", f"saves={saves}", "name=world")
    command = [sys.executable, "-m", "comas", "configs/quickstart.yaml", *settings]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=600)
    lines = (saves / "latest" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def is_within(value: float, name: str) -> bool:
    least, most = BOUNDS[name]
    return least <= value <= most


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("agent", AGENTS)
def test_the_wrong_habit_is_the_mode(rows, agent, domain):
    accuracy = rows[0][f"agent_{agent}/validation/greedy/accuracy/{domain}"]
    assert is_within(accuracy, "greedy accuracy")


@pytest.mark.parametrize("agent", AGENTS)
def test_the_right_answer_is_sampled_often_enough_to_be_found(rows, agent):
    assert is_within(rows[0][f"agent_{agent}/validation/accuracy"], "sampled accuracy")


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("measure", ["overlooks", "accuses", "accepts_true", "accepts_false"])
def test_judges_err_both_ways(rows, agent, measure):
    assert is_within(rows[0][f"agent_{agent}/probe/{measure}"], measure)


def test_the_reward_is_better_than_chance_and_far_from_perfect(rows):
    accuracy = rows[1]["reward_effectiveness/from_score_2/balanced_accuracy"]
    assert is_within(accuracy, "balanced accuracy of the reward")


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
