"""Faults at random moments: a short version of scripts/chaos.sh, and what it would notice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest

from comas.utils.files import json_lines
from scripts.chaos import __main__ as chaos
from scripts.chaos.__main__ import Arguments, main, plan, possible_kinds
from scripts.chaos.faults import FAULTS, FULL_DISK, flip_bits, remove, truncate
from scripts.chaos.trial import Training, unused_memory


@pytest.mark.stack
@pytest.mark.slow
def test_a_run_that_is_disturbed_ends_as_if_it_had_not_been(society, capfd):
    """Killed, and robbed of an engine, in a random order."""
    kinds = "SIGKILL driver,SIGKILL rollout engine"
    status = main(Arguments(faults=2, steps=10, kinds=kinds))
    printed = capfd.readouterr().out
    assert status == 0, printed
    assert "its end: as undisturbed, and nothing is left" in printed
    assert "2 of 2 faults met, 0 things wrong" in printed
    for kind, way in (
        ("SIGKILL driver", "by one resume"),
        ("SIGKILL rollout engine", "by itself"),
    ):
        [line] = [line for line in printed.splitlines() if line.startswith(kind)]
        assert f": {way}, next step after" in line


def test_every_kind_is_met_before_any_is_met_again():
    kinds = sorted(FAULTS)
    planned = plan(kinds, num=2 * len(kinds) + 1, rng=Random(0))
    assert Counter(planned[: len(kinds)]) == Counter(kinds)
    assert sorted(Counter(planned).values()) == [2] * (len(kinds) - 1) + [3]
    assert planned == plan(kinds, num=2 * len(kinds) + 1, rng=Random(0))
    assert planned != plan(kinds, num=2 * len(kinds) + 1, rng=Random(1))


def test_a_kind_that_there_is_not_is_refused_before_anything_begins(monkeypatch):
    monkeypatch.setattr(chaos, "build_society", lambda *_, **__: pytest.fail("it begins"))
    with pytest.raises(ValueError, match="there is no SIGKIL driver; choose from SIGINT driver, "):
        main(Arguments(kinds="SIGKILL driver, SIGKIL driver"))


@pytest.mark.parametrize("kinds", ["full disk", "full disk,no file more"])
def test_where_no_kind_is_left_it_is_said_what_to_do(tmp_path: Path, monkeypatch, kinds: str):
    (tmp_path / "saves/quickstart").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chaos, "build_society", lambda *_, **__: None)
    monkeypatch.setattr(chaos, "small_disk", lambda: nullcontext((tmp_path / "disk", False)))
    with pytest.raises(ValueError, match=r"no disk can be mounted here.* name other kinds"):
        main(Arguments(kinds=kinds))
    assert not set(FULL_DISK) & set(possible_kinds(list(FAULTS), can_be_filled=False))


def run_folder(saves: Path, name: str) -> Path:
    folder = saves / f"20260101-000000-{name}"
    (folder / "discussions").mkdir(parents=True)
    (folder / "models/agent_0").mkdir(parents=True)
    (folder / "models/agent_0/weights").write_bytes(b"weights")
    rows = [{"step": step, "loss": step / 7, "time/step_s": step} for step in range(3)]
    (folder / "metrics.jsonl").write_text(json_lines(rows))
    (folder / "discussions/step_0001.jsonl").write_text(json_lines([{"id": "a", "version": 1}]))
    return folder


def test_a_run_that_ends_otherwise_is_noticed(tmp_path: Path):
    reference, disturbed = run_folder(tmp_path, "reference"), run_folder(tmp_path, "run1")
    trial = Training(tmp_path, tmp_path, "run1", num_steps=2)
    assert trial.step() == 2
    assert list(trial.differences(reference)) == []
    rows = [json.loads(line) for line in (disturbed / "metrics.jsonl").read_text().splitlines()]
    rows[1] |= {"time/step_s": 99.0, "recovery/engine_restarts": 1}
    (disturbed / "metrics.jsonl").write_text(json_lines(rows))
    assert list(trial.differences(reference)) == []
    rows[2]["loss"] += 1e-9
    (disturbed / "metrics.jsonl").write_text(json_lines([*rows, rows[2]]))
    (disturbed / "discussions/step_0001.jsonl").write_text(json_lines([{"id": "a", "version": 2}]))
    (disturbed / "models/agent_0/weights").write_bytes(b"weighty")
    found = "\n".join(trial.differences(reference))
    for difference in (
        "line 3, loss",
        "line 4, step",
        "version: 1 -> 2",
        "agent_0/weights differs",
    ):
        assert difference in found


def test_what_outlives_a_run_is_noticed(tmp_path: Path):
    trial = Training(tmp_path, tmp_path, "run1", num_steps=2)
    before = unused_memory()
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment
    ) as process:
        assert [line.split(":")[0] for line in trial.leftovers(before)] == [
            f"process {process.pid}"
        ]
        trial.kill()
    (tmp_path / "pymp-0").mkdir()
    memory = Path(f"/dev/shm/comas-test-{os.getpid()}")
    memory.touch()
    try:
        left = set(trial.leftovers(before))  # with what others leave meanwhile
        assert left >= {str(tmp_path / "pymp-0"), str(memory)}
    finally:
        memory.unlink()


def test_what_ends_by_itself_right_after_a_run_is_none_of_its_leftovers(tmp_path: Path):
    trial = Training(tmp_path, tmp_path, "run1", num_steps=2)
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(["sleep", "0.5"], env=environment):
        assert list(trial.leftovers(set(Path("/dev/shm").iterdir()))) == []


@pytest.mark.parametrize(("spoil", "left"), [(truncate, 5), (flip_bits, 10), (remove, None)])
def test_a_checkpoint_s_file_is_spoilt(tmp_path: Path, spoil, left: int | None):
    path = tmp_path / "weights"
    path.write_bytes(b"0123456789")
    spoil(path, Random(0))
    assert (path.stat().st_size if path.exists() else None) == left
    assert not path.exists() or path.read_bytes() != b"0123456789"
    shutil.rmtree(tmp_path)
