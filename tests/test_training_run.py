"""The main job as its users start it: the quick-start society through the whole real stack."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from programs import assert_nothing_is_left, descendants, start
from small_runs import rows_of
from transformers import AutoModelForCausalLM, AutoTokenizer

from comas.run.metrics.meanings import as_regex, meanings
from comas.run.records import read_tokens
from comas.utils.processes import command_line
from scripts.chaos.trial import IGNORED_METRICS, model_differences
from scripts.golden_run import compare

pytestmark = pytest.mark.stack

STEPS = 6
SETTINGS = (
    f"training.num_steps={STEPS}",
    "training.save_every=2",
    "training.validate_every=3",
    "validation.num_questions=30",
    "validation.discussions=true",
)
"""Short, but with every event of a long run: validations, checkpoints, several steps."""


def train(saves: Path, *arguments: str) -> subprocess.Popen[str]:
    return start(sys.executable, "-m", "comas", *arguments, f"saves={saves}")


def run(saves: Path, *arguments: str, timeout_s: float = 900) -> tuple[int, str]:
    """Run to its end: (exit status, all it printed). Asserts that it leaves no process behind."""
    process = train(saves, *arguments)
    try:
        output, _ = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    assert_nothing_is_left()
    return process.returncode, output


def wait_for_step(run_directory: Path, step: int, process: subprocess.Popen[str]) -> None:
    while process.poll() is None:
        metrics = run_directory / "metrics.jsonl"
        if metrics.exists() and f'"step": {step}' in metrics.read_text():
            return
        time.sleep(0.1)
    raise AssertionError(f"the run ended early:\n{process.communicate()[0]}")


def wait_for_run_directory(saves: Path, name: str, process: subprocess.Popen[str]) -> Path:
    while name not in (saves / "latest").resolve().name:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    return (saves / "latest").resolve()


@pytest.fixture(scope="module")
def finished(saves: Path) -> tuple[Path, str]:
    """A run that nobody interrupted, and what it printed."""
    status, output = run(saves, "configs/quickstart.yaml", *SETTINGS)
    assert status == 0, output
    return (saves / "latest").resolve(), output


def test_every_step_has_the_promised_metrics(finished):
    run_directory, output = finished
    assert "24 discussions" in output and f"step {STEPS}/{STEPS}" in output
    rows = rows_of(run_directory)
    known = re.compile("|".join(as_regex(each.pattern) for each in meanings()))
    assert [row["step"] for row in rows] == list(range(STEPS + 1))
    for row in rows[1:]:
        assert {"train/accuracy", "reward/solution", "agent_1/policy/entropy"} <= row.keys()
        assert [key for key in row if key != "step" and known.fullmatch(key) is None] == []
        for agent in (0, 1):  # engines and policies agree right after every sync
            assert row[f"agent_{agent}/rollout_mismatch/max"] < 1e-3
    validated = [row["step"] for row in rows if "validation/accuracy" in row]
    assert validated == [0, 3, 6]


def test_the_trained_agents_load_and_differ_from_what_they_began_with(finished, society):
    run_directory, _ = finished
    for agent, architecture in enumerate(("qwen2", "llama")):
        folder = run_directory / "models" / f"agent_{agent}"
        trained = AutoModelForCausalLM.from_pretrained(folder)
        before = AutoModelForCausalLM.from_pretrained(society / "models" / architecture)
        assert trained.config.model_type == architecture
        assert any(
            not a.equal(b) for a, b in zip(trained.parameters(), before.parameters(), strict=True)
        )
        assert AutoTokenizer.from_pretrained(folder).chat_template


def test_the_run_directory_holds_what_a_researcher_needs(finished, saves):
    run_directory, _ = finished
    names = {path.name for path in run_directory.iterdir()}
    assert {"config.yaml", "inputs.json", "versions.json", "train.log", "report.html"} <= names
    tokens = read_tokens(run_directory / "tokens")
    assert all(len(of["advantages"]) == len(of["logprobs"]) for of in tokens.values())
    # 6 steps x 24 discussions x 12 turns, all of them trained
    assert len(tokens) == 6 * 24 * 12
    checkpoints = sorted(path.name for path in (run_directory / "checkpoints").iterdir())
    assert checkpoints == ["step_0004", "step_0006"]
    assert (saves / "latest").resolve() == run_directory


@pytest.mark.slow
def test_a_run_that_loses_an_engine_and_then_its_driver_ends_as_if_it_had_not(finished, saves):
    """SIGKILL of a rollout engine after step 1, and of the driver after step 3."""
    undisturbed, _ = finished
    process = train(saves, "configs/quickstart.yaml", *SETTINGS, "name=disturbed")
    disturbed = wait_for_run_directory(saves, "disturbed", process)
    wait_for_step(disturbed, 1, process)
    engines = [p for p in descendants() if "RolloutActor" in " ".join(command_line(p))]
    assert len(engines) == 2
    engines[0].kill()
    wait_for_step(disturbed, 3, process)
    process.send_signal(signal.SIGKILL)
    output, _ = process.communicate(timeout=180)
    assert "step 3/6" in output  # by itself
    # What the killed run left behind may still be ending meanwhile.
    status, output = run(saves, f"resume={disturbed}")
    assert status == 0, output
    assert "continuing after step 2" in output
    assert list(compare(undisturbed, disturbed, ignored=IGNORED_METRICS)) == []
    assert list(model_differences(undisturbed / "models", disturbed / "models")) == []


def test_a_run_that_is_terminated_while_its_engines_start_leaves_nothing_behind(saves):
    process = train(saves, "configs/quickstart.yaml", *SETTINGS, "name=terminated")
    terminated = wait_for_run_directory(saves, "terminated", process)
    while not any("RolloutActor" in " ".join(command_line(each)) for each in descendants()):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert output.splitlines()[-1].endswith(f"bash scripts/train_comas.sh resume={terminated}")
    assert_nothing_is_left()
