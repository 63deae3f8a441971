"""Reproduction: plans on folders, what is frozen, one real run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from made_results import ACCURACIES
from small_runs import REPOSITORY
from waiting import wait_until

from comas.config import config_as_yaml, load
from comas.config.faults import ConfigError
from comas.preflight.configuration import load_config
from comas.preflight.locations import society_folder
from comas.reproduction import __main__ as reproduction
from comas.reproduction import claims, outcomes, runs
from comas.reproduction.__main__ import describe, save_report
from comas.reproduction.experiments import LEARNING_RATES, TUNED, TUNING_SEEDS
from comas.reproduction.frozen import FROZEN, Frozen, of_today
from comas.reproduction.results import (
    SAMPLED,
)
from comas.reproduction.runs import (
    PlannedRun,
    configurations,
    make_runs,
    plan_runs,
    seconds_of,
)
from comas.reproduction.settings import Settings, find_conflicts
from comas.run.directory import INPUTS, inputs_as_json
from comas.utils.terminal import EXIT_FAULT


@pytest.fixture(autouse=True)
def in_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


# ---------------------------------------------------------------- plans


def begin(planned: PlannedRun, *, finished: bool, changed: str | None = None) -> Path:
    """A run's folder as training leaves it."""
    folder = planned.saves / f"20260101-000000-{planned.name}"
    (folder / "models").mkdir(parents=True)
    overrides = [*planned.overrides, *([changed] if changed else [])]
    config = load_config(planned.experiment.config, overrides)
    (folder / "config.yaml").write_text(config_as_yaml(config))
    rows = [
        {"step": 0, SAMPLED: 0.2, **dict.fromkeys(ACCURACIES, 0.4), "time/validation_s": 3.0},
        {"step": 1, SAMPLED: 0.3, **dict.fromkeys(ACCURACIES, 0.5), "time/step_s": 4.0},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    began = "2099-01-01T00:00:00+00:00"
    versions = [{"started": began, "git": {"commit": "0123456789", "dirty": False}}]
    (folder / "versions.json").write_text(json.dumps(versions))
    if finished:
        (folder / "models/step").write_text("1\n")
    return folder


def settings(tmp_path: Path, *overrides: str) -> Settings:
    where = [f"saves={tmp_path / 'saves'}", f"results={tmp_path / 'results'}"]
    return load(Settings, None, [*where, *overrides], check=find_conflicts)


def test_the_plan_knows_what_is_finished(tmp_path: Path):
    chosen = settings(tmp_path, "only=[comas,muted]", "seeds=[0,1]")
    plan = plan_runs(chosen)
    assert [r.label for r in plan] == [
        "comas, seed 0",
        "muted, seed 0",
        "comas, seed 1",
        "muted, seed 1",
    ]
    assert describe(plan, study="quickstart", every=False) == [
        "4 runs, 0 of them finished; the others take about 6 minutes, as on 2 cores"
    ]
    begin(plan[0], finished=True)
    begin(plan[1], finished=False)
    chosen = settings(tmp_path, "only=[comas,muted]", "seeds=[0]")
    plan = plan_runs(chosen)
    assert [r.finished is not None for r in plan] == [True, False]
    assert [seconds_of(r) for r in plan] == [7.0, None]
    moved = (tmp_path / "saves").rename(tmp_path / "moved")
    assert plan_runs(settings(tmp_path, "only=[comas]", "seeds=[0]", f"saves={moved}"))[0].finished
    moved.rename(tmp_path / "saves")
    lines = describe(plan, study="quickstart", every=True)
    assert lines[0].startswith("2 runs, 1 of them finished; the others take about 0 minutes")
    assert "finished" in lines[1]
    assert "finished" not in lines[2]


def test_a_run_of_other_settings_or_of_another_society_is_refused(tmp_path: Path):
    chosen = settings(tmp_path, "only=[comas]", "seeds=[0]")
    folder = begin(plan_runs(chosen)[0], finished=True, changed="optimization.learning_rate=0.5")
    with pytest.raises(ValueError, match=r"other settings \(optimization.learning_rate: 0.5 ->"):
        plan_runs(chosen)
    shutil.rmtree(folder)
    begin(plan_runs(chosen)[0], finished=True)
    name, today = "quickstart/train.jsonl", society_folder(tmp_path / "elsewhere", seed=0)
    (folder / INPUTS).write_text(inputs_as_json(folder, {name: str(tmp_path)}))
    with pytest.raises(ValueError, match=rf"makes another society \({today.name}\); remove that"):
        plan_runs(chosen)
    today.mkdir(parents=True)
    (folder / INPUTS).write_text(inputs_as_json(folder, {name: str(today)}))
    assert plan_runs(chosen)[0].finished  # of the same, wherever it lies now


def test_a_report_is_of_the_runs_that_are_finished_and_names_the_others(tmp_path: Path):
    chosen = settings(tmp_path, "only=[comas,muted]", "seeds=[0,1]")
    plan = plan_runs(chosen)
    with pytest.raises(ValueError, match=r"no run in .* is finished: nothing to report"):
        save_report(plan, chosen)
    for planned in plan[:3]:
        begin(planned, finished=True)
    report = save_report(plan, chosen).read_text()
    assert "| comas (method) | CoMAS as it is | 40.0 ± 0.0 | 50.0 ± 0.0 | +10.0 ± 0.0 |" in report
    assert "**Not finished: muted (seed 1).**" in report
    assert "**not run** | missing: muted (seed 1), exchanged |" in report
    assert "code 0123456. **Nothing was frozen before the runs.** Values are means" in report
    for figure in ("dynamics.png", "ablations.png", "agents.png"):
        assert f"({figure})" in report
        assert (tmp_path / "results" / figure).stat().st_size > 1000
    last = begin(plan[3], finished=True)
    other = [{"git": {"commit": "abcdef0123", "dirty": True}}, {"git": None}]
    (last / "versions.json").write_text(json.dumps(other))
    report = save_report(plan, chosen).read_text()
    assert "Not finished" not in report
    assert "code 0123456, abcdef0+, unknown. **The runs are of different versions" in report


def test_a_frozen_study_is_run_and_reported_as_it_was_frozen(tmp_path: Path, monkeypatch, caplog):
    arguments = [f"saves={tmp_path / 'saves'}", f"results={tmp_path / 'results'}"]
    monkeypatch.setattr(reproduction, "make_runs", lambda runs: None)
    assert reproduction.main(["--freeze", *arguments]) == 0
    assert reproduction.main(["--freeze", *arguments]) == EXIT_FAULT  # once
    begin(plan_runs(settings(tmp_path, "only=[muted]", "seeds=[0]"))[0], finished=True)
    again = ["only=[muted]", "seeds=[0]", *arguments]
    assert reproduction.main(again) == 0
    report = tmp_path / "results/report.md"
    assert f"([{FROZEN}]({FROZEN})). Values are means" in report.read_text()
    path = tmp_path / "results" / FROZEN
    frozen = json.loads(path.read_text())
    before = {name: keys for name, keys in frozen["settings"].items() if name != "muted"}
    path.write_text(json.dumps(frozen | {"settings": before}))
    assert reproduction.main(again) == 0
    assert f"([{FROZEN}]({FROZEN})); those of muted came later. Values" in report.read_text()
    kl = {"comas": frozen["settings"]["comas"] | {"optimization.kl_coef": "0.3"}}
    for change, said in (
        ({"society": "0" * 12}, "society"),
        ({"rules": "0" * 12}, "rules"),
        ({"settings": frozen["settings"] | kl}, "optimization.kl_coef of comas"),
    ):
        path.write_text(json.dumps(frozen | change))
        assert reproduction.main(again) == EXIT_FAULT
        assert f"when it was frozen: {said}. Restore that" in caplog.text


def test_runs_of_a_frozen_study_are_of_its_society_however_its_code_is_written(tmp_path: Path):
    chosen = settings(tmp_path, "only=[comas]", "seeds=[0]")
    folder = begin(plan_runs(chosen)[0], finished=True)
    name = "quickstart/train.jsonl"
    (folder / INPUTS).write_text(inputs_as_json(folder, {name: str(tmp_path)}))
    frozen = Frozen("2098-01-01T00:00:00Z", "0" * 12, "0" * 12, {})
    assert plan_runs(chosen, frozen)[0].finished
    with pytest.raises(ValueError, match="makes another society"):
        plan_runs(chosen, replace(frozen, date="2099-02-01T00:00:00Z"))  # made before that


def test_what_is_frozen_says_how_experiments_differ():
    frozen = of_today(configurations(Settings()), (claims, outcomes))
    assert frozen.settings["comas"]["optimization.kl_coef"] == "0.02"
    assert frozen.settings["flipped"] == {"name": "quickstart_flipped", "reward.scheme": "flipped"}
    assert frozen.settings["long_frozen_joint"]["society.scorer_weights"] == "frozen"


def test_tuning_plans_every_rate_on_seeds_of_its_own(tmp_path: Path):
    chosen = settings(tmp_path, *reproduction.STANDS_FOR["--tune"][:3])
    labels = [planned.label for planned in plan_runs(chosen)]
    assert len(labels) == len(TUNING_SEEDS) * len(LEARNING_RATES) * len(TUNED)
    assert labels[0] == "comas, seed 100, learning rate 5e-05"
    assert "optimization.learning_rate=5e-05" in plan_runs(chosen)[0].overrides
    assert not set(TUNING_SEEDS) & set(settings(tmp_path).seeds)


def test_wrong_settings_name_what_is_allowed(tmp_path: Path):
    with pytest.raises(ConfigError, match="choose from comas, no_evaluation"):
        settings(tmp_path, "only=[muteed]")
    with pytest.raises(ConfigError, match="must hold seeds, each once"):
        settings(tmp_path, "seeds=[1,1]")
    with pytest.raises(ConfigError, match="must be one of quickstart, paper, lasting, combined, "):
        settings(tmp_path, "study=big")


@pytest.mark.parametrize("flags", [["--lst"], ["-l"], ["--list", "--seeds=[0]"]])
def test_an_option_that_there_is_not_starts_nothing(flags, tmp_path: Path, monkeypatch, capsys):
    started: list[object] = []
    monkeypatch.setattr(reproduction, "make_runs", started.append)
    with pytest.raises(SystemExit, match="2"):
        reproduction.main([*flags, f"saves={tmp_path}", f"results={tmp_path}"])
    assert not started
    said = capsys.readouterr().err
    assert said.startswith("usage: bash scripts/reproduce.sh ") and "[--voted]" in said
    assert f"error: unrecognized arguments: {flags[-1]}" in said


@pytest.mark.stack
@pytest.mark.parametrize("end", [OSError("the terminal is gone"), KeyboardInterrupt()])
def test_the_run_under_way_ends_with_its_driver(
    end: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    training = tmp_path / "training"
    training.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    training.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(training))
    pids = []

    def show(*_: object) -> None:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pids.append(int((tmp_path / "pid").read_text()))
        raise end

    monkeypatch.setattr(runs, "_show_step", show)
    with pytest.raises(type(end)):
        make_runs(plan_runs(settings(tmp_path, "only=[comas]", "seeds=[0]")))
    assert not psutil.pid_exists(pids[0])


# ---------------------------------------------------------------- for real


@pytest.mark.slow
def test_runs_are_made_once_and_reported(saves: Path, tmp_path: Path):
    command = [sys.executable, "-m", "comas.reproduction", "only=[comas]", "seeds=[0]"]
    command += ["num_steps=1", f"saves={saves}", f"results={tmp_path}"]

    def start() -> str:
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, timeout=1200, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stderr

    said = start()
    assert "comas, seed 0 (1 of 1 to be made)" in said
    assert "held-out" in said
    report = (tmp_path / "report.md").read_text()
    assert "| comas (method) | CoMAS as it is |" in report
    assert "| pass@8 | " in report
    assert "| discussion | " in report
    [made] = saves.glob("*-comas-seed0")
    before = (made / "metrics.jsonl").stat().st_mtime
    said = start()
    assert "1 runs, 1 of them finished" in said
    assert "to be made" not in said
    assert (made / "metrics.jsonl").stat().st_mtime == before
    assert (tmp_path / "report.md").read_text() == report
