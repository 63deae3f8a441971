"""Several seeds are compared by their own runs, wherever those are and whatever else runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import REPOSITORY

pytestmark = pytest.mark.stack

TRAINING = """
import json, sys
from pathlib import Path
import yaml
said = dict(argument.split("=") for argument in sys.argv[2:])
config = {"saves": "saves", "name": "quickstart"} | yaml.safe_load(open(sys.argv[1])) | said
saves = Path(config["saves"])
def write(folder, trained):
    folder.mkdir(parents=True)
    rows = [{"step": 0, "validation/accuracy": 0.4}, {"step": 1, "validation/accuracy": trained}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
if "reward.scheme" not in said:
    write(saves / f"20260101-000000-{config['name']}", 0.5 + int(config["seed"]) / 10)
# Somebody else's run begins meanwhile.
other = saves / f"20260101-000001-other{config['seed']}"
write(other, 0.9)
(saves / "latest").unlink(missing_ok=True)
(saves / "latest").symlink_to(other.name)
"""


@pytest.fixture
def repeat(tmp_path: Path):
    """Call the script where training takes no time."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(REPOSITORY / "scripts/repeat_seeds.sh", scripts)
    shutil.copytree(REPOSITORY / "configs", tmp_path / "configs")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python = tmp_path / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (scripts / "environment.sh").write_text(f"PYTHON_BIN={python}\n")
    (scripts / "training.py").write_text(TRAINING)
    (scripts / "train_comas.sh").write_text(f'exec {python} scripts/training.py "$@"\n')

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "scripts/repeat_seeds.sh", *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return call


def test_the_runs_are_those_of_the_seeds_where_their_config_has_them(repeat, tmp_path: Path):
    own = tmp_path / "own.yaml"
    own.write_text(f"base: configs/quickstart.yaml\nsaves: {tmp_path}/my runs\nname: mine\n")
    done = repeat("0 2", "own.yaml")
    assert done.returncode == 0, done.stderr
    # Untrained 40; trained 50 and 70: mean 60, standard deviation 14.1.
    assert "trained 60.0 ± 14.1" in done.stdout
    assert "-mine-seed0-" in done.stdout
    assert "-mine-seed2-" in done.stdout
    assert not (tmp_path / "saves").exists()


def test_a_run_that_cannot_be_found_is_no_part_of_a_mean(repeat):
    done = repeat("0", "reward.scheme=constant")
    assert done.returncode == 1
    assert "error: seed 0 has been trained, but saves holds 0 runs named quickstart-" in done.stderr
    assert "mean" not in done.stdout


def test_a_wrong_key_is_said_before_any_training(repeat, tmp_path: Path):
    done = repeat("0", "savez=x")
    assert done.returncode == 1
    assert "error: " in done.stderr and "savez" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "saves").exists()
