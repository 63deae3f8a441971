"""Faults at random moments: a short version of scripts/chaos.sh, and what it notices."""

from __future__ import annotations

from pathlib import Path

from comas.utils.files import json_lines
from scripts.chaos.trial import Trial


def run_folder(saves: Path, name: str, *, loss: float = 1 / 7) -> Path:
    folder = saves / f"20260101-000000-{name}"
    (folder / "discussions").mkdir(parents=True)
    (folder / "models/agent_0").mkdir(parents=True)
    rows = [{"step": step, "loss": loss, "time/step_s": len(name) + step} for step in range(3)]
    (folder / "metrics.jsonl").write_text(json_lines(rows))
    (folder / "discussions/step_0001.jsonl").write_text(json_lines([{"version": loss}]))
    (folder / "models/agent_0/weights").write_text(str(loss))
    return folder


def test_a_run_that_ends_otherwise_is_noticed_and_its_times_are_not(tmp_path: Path):
    reference, _ = run_folder(tmp_path, "reference"), run_folder(tmp_path, "same")
    run_folder(tmp_path, "other", loss=1 / 7 + 1e-9)
    same, other = (Trial(tmp_path, tmp_path, name, num_steps=2) for name in ("same", "other"))
    assert same.step() == 2
    assert list(same.differences(reference)) == []
    found = "\n".join(other.differences(reference))
    for difference in ("line 3, loss", "version: ", "agent_0/weights differs"):
        assert difference in found
