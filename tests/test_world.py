"""The main job as its users start it: the quick-start society through the whole real stack. Before
its first step it is as ``comas.quickstart.world`` says."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil
import pytest
from programs import assert_nothing_is_left, descendants, start
from small_runs import rows_of

from comas.quickstart.world import HABITS, UNSEEN
from comas.run.metrics.meanings import as_regex, meanings
from comas.run.records import read_tokens
from comas.types import DOMAINS
from comas.utils.processes import command_line
from scripts.chaos.trial import model_differences
from scripts.golden_run import compare

pytestmark = pytest.mark.stack

STEPS, BATCH = 2, 80
SETTINGS = (
    *(f"training.num_steps={STEPS}", f"rollout.batch_size={BATCH}"),
    *("training.save_every=1", "training.validate_every=2"),
)
"""Short, but with every event of a long run; and 320 solutions in a step."""
LONGER = (
    *("training.num_steps=6", "training.save_every=2", "training.validate_every=3"),
    *("validation.num_questions=30", "validation.discussions=true"),
)
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


def train(saves: Path, *arguments: str) -> subprocess.Popen[str]:
    return start(sys.executable, "-m", "comas", *arguments, f"saves={saves}")


def run(saves: Path, *arguments: str) -> str:
    """Run to the end and return the output; no process may be left."""
    process = train(saves, *arguments)
    try:
        output, _ = process.communicate(timeout=900)
    finally:
        process.kill()
    assert_nothing_is_left()
    assert process.returncode == 0, output
    return output


def wait_until(holds: Callable[[], object], process: subprocess.Popen[str]) -> None:
    while not holds():
        assert process.poll() is None, f"the run ended early:\n{process.communicate()[0]}"
        time.sleep(0.1)


def engines() -> list[psutil.Process]:
    return [p for p in descendants() if "RolloutActor" in " ".join(command_line(p))]


def run_directory(saves: Path, name: str, process: subprocess.Popen[str]) -> Path:
    wait_until(lambda: name in (saves / "latest").resolve().name, process)
    return (saves / "latest").resolve()


@pytest.fixture(scope="module")
def finished(saves: Path) -> tuple[Path, str]:
    output = run(saves, "configs/quickstart.yaml", *SETTINGS)
    return (saves / "latest").resolve(), output


@pytest.fixture(scope="module")
def rows(finished: tuple[Path, str]) -> list[dict[str, Any]]:
    """The validation before the first step, and both steps."""
    return rows_of(finished[0])


def test_an_untrained_agent_is_within_its_bounds(rows):
    for measure, (least, most) in BOUNDS.items():
        for agent in range(2):
            assert least <= rows[0][f"agent_{agent}/{measure}"] <= most, (agent, measure)


def test_the_reward_is_better_than_chance_and_far_from_perfect(rows):
    assert 0.60 <= rows[1]["reward_effectiveness/from_score_2/balanced_accuracy"] <= 0.75


def test_each_model_names_the_mistakes_of_the_other_more_often_than_its_own(rows):
    def named(agent: int, model: str) -> float:
        kinds = [f"{domain}/{habit}" for domain in DOMAINS for habit in HABITS[model][domain]]
        return fmean(rows[0][f"agent_{agent}/probe/names/{kind}"] for kind in kinds)

    assert named(0, "qwen2") + 0.1 < named(0, "llama")
    assert named(1, "llama") + 0.1 < named(1, "qwen2")


def test_nobody_names_the_kind_that_no_judge_was_taught(rows):
    for domain in DOMAINS:
        assert rows[0][f"probe/names/{domain}/{UNSEEN}"] == 0


def test_every_step_has_the_promised_metrics(finished, rows):
    assert f"{BATCH} discussions" in finished[1] and f"step {STEPS}/{STEPS}" in finished[1]
    known = re.compile("|".join(as_regex(each.pattern) for each in meanings()))
    assert [row["step"] for row in rows] == list(range(STEPS + 1))
    for row in rows[1:]:
        assert {"train/accuracy", "reward/solution", "agent_1/policy/entropy"} <= row.keys()
        assert [key for key in row if key != "step" and known.fullmatch(key) is None] == []
        for agent in (0, 1):  # engines and policies agree right after every sync
            assert row[f"agent_{agent}/rollout_mismatch/max"] < 1e-3
    assert [row["step"] for row in rows if "validation/accuracy" in row] == [0, STEPS]


def test_the_run_directory_holds_what_a_researcher_needs(finished):
    folder, _ = finished
    names = {path.name for path in folder.iterdir()}
    assert {"config.yaml", "inputs.json", "versions.json", "train.log", "report.html"} <= names
    tokens = read_tokens(folder / "tokens")
    trained = [of for of in tokens.values() if len(of["response_token_ids"]) < 48]  # not cut off
    assert all(len(of["advantages"]) == len(of["logprobs"]) for of in trained)
    # discussions of 12 turns, of which hardly any is cut off
    assert 0.99 * len(tokens) < len(trained) <= len(tokens) == STEPS * BATCH * 12
    checkpoints = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert checkpoints == ["step_0001", "step_0002"]


@pytest.mark.slow
def test_a_run_that_loses_an_engine_and_then_its_driver_ends_as_if_it_had_not(saves):
    run(saves, "configs/quickstart.yaml", *LONGER, "name=undisturbed")
    undisturbed = (saves / "latest").resolve()
    process = train(saves, "configs/quickstart.yaml", *LONGER, "name=lost")
    disturbed = run_directory(saves, "lost", process)
    metrics = disturbed / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and '"step": 1' in metrics.read_text(), process)
    [lost, _] = engines()
    lost.kill()
    wait_until(lambda: '"step": 3' in metrics.read_text(), process)
    process.send_signal(signal.SIGKILL)
    output, _ = process.communicate(timeout=600)
    assert "step 3/6" in output  # by itself
    # What the killed run left behind may still be ending meanwhile.
    assert "continuing after step 2" in run(saves, f"resume={disturbed}")
    assert list(compare(undisturbed, disturbed)) == []
    assert list(model_differences(undisturbed / "models", disturbed / "models")) == []


def test_a_run_that_is_terminated_while_its_engines_start_leaves_nothing_behind(saves):
    process = train(saves, "configs/quickstart.yaml", *SETTINGS, "name=terminated")
    terminated = run_directory(saves, "terminated", process)
    wait_until(engines, process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert output.splitlines()[-1].endswith(f"bash scripts/train_comas.sh resume={terminated}")
    assert_nothing_is_left()
