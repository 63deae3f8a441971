"""Reproduction: rules and tables by hand-made results, plans on folders, one real run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest
from small_runs import REPOSITORY
from waiting import wait_until

from comas.config import config_as_yaml, load
from comas.config.faults import ConfigError
from comas.preflight.configuration import load_config
from comas.preflight.locations import society_folder
from comas.reproduction import __main__ as reproduction
from comas.reproduction import runs
from comas.reproduction.__main__ import describe, save_report
from comas.reproduction.claims import (
    Claim,
    below,
    both,
    claims_of,
    effectiveness_rises,
    judge,
    learns,
    reward_falls,
    reward_saturates,
    rising_means,
    stays_flat,
)
from comas.reproduction.experiments import PLANS
from comas.reproduction.report import (
    accuracy_table,
    claims_table,
    interval,
    machines_table,
    mean_and_spread,
    with_interval,
)
from comas.reproduction.results import (
    QUALITIES,
    Ends,
    RunResult,
    as_table,
    ends,
    read_results,
    write_results,
)
from comas.reproduction.runs import PlannedRun, make_runs, plan_runs, seconds_of
from comas.reproduction.settings import Settings, find_conflicts
from comas.run.origin import INPUTS, inputs_as_json
from comas.utils.files import FileError
from comas.utils.terminal import EXIT_FAULT


def run(
    experiment: str = "comas",
    seed: int = 0,
    *,
    untrained: float = 40.0,
    trained: float = 70.0,
    reward: tuple[float | None, float | None] = (0.5, 0.6),
    effectiveness: tuple[float | None, float | None] = (0.6, 0.7),
) -> RunResult:
    return RunResult(
        experiment=experiment,
        seed=seed,
        num_steps=60,
        untrained=untrained,
        trained=trained,
        solution_reward=Ends(*reward),
        reward=Ends(0.5, 0.5),
        response_length=Ends(10.0, 11.0),
        effectiveness={name: Ends(*effectiveness) for name in QUALITIES},
        seconds=100.0,
    )


def results(**gains: list[float]):
    return as_table(
        run(name, seed, trained=40.0 + gain)
        for name, of_seeds in gains.items()
        for seed, gain in enumerate(of_seeds)
    )


LEARNS = Claim("it learns", "it does", ("comas",), learns)
BELOW = Claim("it learns more", "in each seed", ("comas", "muted", "exchanged"), below("muted"))
HALF_RUN = {"comas": [30, 30, 30], "muted": [0, 0], "exchanged": [0]}


@pytest.fixture(autouse=True)
def in_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


# ---------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("rule", "gains", "holds"),
    [
        # A rise of up to 3 points is noise, and every seed must rise by more.
        (learns, {"comas": [30, 3.1, 25]}, True),
        (learns, {"comas": [30, 3.0, 25]}, False),
        # Each seed is compared with its own: a sixth of 30 is 5, of 12 is 2.
        (below("muted"), {"comas": [30, 12], "muted": [4.9, 2.1]}, True),
        (below("muted", share=1 / 6), {"comas": [30, 12], "muted": [4.9, 2.1]}, False),
        (below("muted", share=1 / 5), {"comas": [30, 12], "muted": [4.9, 2.1]}, True),
        # Where CoMAS learns nothing: a sixth of -6 is -1, half of it -3, and both are above.
        (below("muted", share=1 / 6), {"comas": [-6], "muted": [-2]}, False),
        (below("exchanged", share=1 / 2), {"comas": [-6], "exchanged": [-4]}, False),
        (below("muted"), {"comas": [30, 3.0], "muted": [0, 0]}, False),
        (below("muted"), {"comas": [30, 3.1], "muted": [0, 0]}, True),
        (rising_means("a", "b", "c"), {"a": [10, 20], "b": [10, 21], "c": [30, 0]}, False),
        # One seed of one control that rises is enough.
        (stays_flat("a", "b"), {"a": [3.1, -9], "b": [0.0, 2]}, False),
        (stays_flat("a", "b"), {"a": [3.0, -9], "b": [0.0, 2]}, True),
        (rising_means("a", "b"), {"a": [10, 20], "b": [10, 21]}, True),
        (both(learns, below("a")), {"comas": [30], "a": [40]}, False),
        (both(learns, below("a")), {"comas": [30], "a": [20]}, True),
    ],
)
def test_a_rule_holds_for_these_gains(rule, gains: dict[str, list[float]], holds: bool):
    assert rule(results(**gains))[0] == holds


def test_a_rule_says_what_it_has_found_in_pairs_of_a_seed():
    found = as_table([run(seed=0), run(seed=1, trained=60.0), run("muted", 1, trained=41.0)])
    assert both(learns, below("muted"))(found) == (
        True,
        "gains +30.0, +20.0; gains +1.0 against +20.0",
    )
    assert not below("muted")(as_table([run(seed=0), run("muted", 2, trained=41.0)]))[0]


def test_rewards_fall_and_saturate_with_every_seed():
    falling = as_table([run("a", 0, reward=(0.9, 0.8)), run("a", 1, reward=(0.9, 0.89))])
    assert reward_falls("a")(falling) == (True, "changes -0.100, -0.010")
    mixed = as_table([run("a", 0, reward=(0.9, 0.8)), run("a", 1, reward=(0.9, 0.91))])
    assert not reward_falls("a")(mixed)[0]
    assert not reward_falls("a")(as_table([run("a", reward=(None, None))]))[0]
    assert reward_saturates("a", at_least=0.8)(falling) == (True, "at the end 0.80, 0.89")
    assert not reward_saturates("a", at_least=0.81)(falling)[0]


def test_effectiveness_needs_accuracy_and_precision():
    assert effectiveness_rises(as_table([run()]))[0]
    assert not effectiveness_rises(as_table([run(), run(seed=1, effectiveness=(0.7, 0.7))]))[0]
    assert not effectiveness_rises(as_table([run(effectiveness=(None, 0.7))]))[0]


@pytest.mark.parametrize(
    ("claim", "gains", "seeds", "outcome", "evidence"),
    [
        (LEARNS, {"comas": [30]}, [0], "reproduced", "gains +30.0"),
        (LEARNS, {"comas": [1]}, [0], "not reproduced", "gains +1.0"),
        (Claim("times", "needs GPUs"), {"comas": [30]}, [0], "not testable at this scale", None),
        (BELOW, {"comas": [30]}, [0], "not run", "missing: muted, exchanged"),
        (BELOW, HALF_RUN, [0], "reproduced", None),
        (BELOW, HALF_RUN, [0, 1, 2], "not run", "missing: muted (seed 2), exchanged (seeds 1, 2)"),
    ],
)
def test_a_claim_is_judged_when_every_seed_has_run(claim, gains, seeds, outcome, evidence):
    judged = judge(claim, results(**gains), seeds=seeds)
    assert judged.outcome == outcome
    assert evidence in (None, judged.evidence)


def test_the_report_that_is_kept_follows_from_its_numbers():
    kept = REPOSITORY / "results/reproduction"
    _, found = read_results(kept / "amd-epyc-bfloat16.json")
    table = claims_table(claims_of(PLANS["quickstart"]), found, seeds=[0, 1, 2])
    assert table in (kept / "report.md").read_text()


# ---------------------------------------------------------------- numbers


def test_the_ends_of_a_run_are_means_of_ten_steps():
    rows = [{"step": i, "x": float(i)} for i in range(1, 31)]
    assert ends(rows, "x") == Ends(5.5, 25.5)
    rows[0]["x"] = None
    assert ends(rows, "x").first == 6.0  # of 2 to 10
    assert ends(rows, "y") == Ends(None, None)


@pytest.mark.parametrize("society", PLANS)
def test_every_experiment_has_a_configuration_and_every_claim_its_experiments(society):
    plan = PLANS[society]
    for experiment in plan.experiments:
        assert load_config(REPOSITORY / experiment.config, []).seed == 0
    known = {experiment.name for experiment in plan.experiments}
    for claim in claims_of(plan):
        assert set(claim.needs) <= known, claim.statement
    assert {*plan.by_number, *plan.by_diversity} <= known


def test_numbers_survive_their_file(tmp_path: Path):
    runs = [run(), run("muted", 2, reward=(None, 0.1))]
    write_results(tmp_path / "a.json", runs, machine="A", date="2026-01-01")
    machine, found = read_results(tmp_path / "a.json")
    assert machine == "A"
    pd.testing.assert_frame_equal(found, as_table(runs))
    (tmp_path / "a.json").write_text('{"machine": "A", "runs": []}')
    with pytest.raises(FileError, match=r"a\.json is damaged: date: Field required"):
        read_results(tmp_path / "a.json")


def test_an_interval_is_students():
    low, high = interval([18, 20, 22])
    assert (low, high) == pytest.approx((20 - 4.3027 * 2 / 3**0.5, 20 + 4.3027 * 2 / 3**0.5), 1e-4)
    assert with_interval([18, 20, 22]) == "+20.0 (+15.0 to +25.0)"
    assert with_interval([18]) == "+18.0"
    assert mean_and_spread([1, 3], sign=True) == "+2.0 ± 1.4"


def test_a_row_has_means_and_what_comas_gains_more():
    found = results(comas=[30, 20, 25], muted=[2, 1, 3])
    known = [e for e in PLANS["quickstart"].experiments if e.name in ("comas", "muted")]
    table = accuracy_table(found, known).splitlines()
    assert "| 40.0 ± 0.0 | 65.0 ± 5.0 | +25.0 ± 5.0 |  | 3 |" in table[2]
    # 28, 19, 22: mean 23, standard deviation 4.58.
    assert "| +2.0 ± 1.0 | +23.0 (+11.6 to +34.4) | 3 |" in table[3]


def test_machines_stand_side_by_side():
    here, there = results(comas=[30, 20]), results(comas=[26, 21])
    known = list(PLANS["quickstart"].experiments[:1])
    assert machines_table(here, {"B": there}, known).splitlines()[2] == (
        "| comas | 65.0 ± 7.1 | 63.5 ± 3.5 | 4.0 |"
    )
    assert "on this machine only" in machines_table(here, {}, known)


# ---------------------------------------------------------------- plans


def begin(planned: PlannedRun, *, finished: bool, changed: str | None = None) -> Path:
    """A run's folder as training leaves it."""
    folder = planned.saves / f"20260101-000000-{planned.name}"
    (folder / "models").mkdir(parents=True)
    overrides = [*planned.overrides, *([changed] if changed else [])]
    config = load_config(planned.experiment.config, overrides)
    (folder / "config.yaml").write_text(config_as_yaml(config))
    rows = [
        {"step": 0, "validation/accuracy": 0.4, "time/validation_s": 3.0},
        {"step": 1, "validation/accuracy": 0.5, "time/step_s": 4.0},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    versions = [{"git": {"commit": "0123456789", "dirty": False}}]
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
    assert describe(plan, society="quickstart", every=False) == [
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
    lines = describe(plan, society="quickstart", every=True)
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
    assert "code 0123456. Values are means" in report
    for figure in ("dynamics.png", "ablations.png", "agents.png"):
        assert f"({figure})" in report
        assert (tmp_path / "results" / figure).stat().st_size > 1000
    last = begin(plan[3], finished=True)
    other = [{"git": {"commit": "abcdef0123", "dirty": True}}, {"git": None}]
    (last / "versions.json").write_text(json.dumps(other))
    report = save_report(plan, chosen).read_text()
    assert "Not finished" not in report
    assert "code 0123456, abcdef0+, unknown. **The runs are of different versions" in report


def test_wrong_settings_name_what_is_allowed(tmp_path: Path):
    with pytest.raises(ConfigError, match="choose from comas, no_evaluation"):
        settings(tmp_path, "only=[muteed]")
    with pytest.raises(ConfigError, match="must hold seeds, each once"):
        settings(tmp_path, "seeds=[1,1]")
    with pytest.raises(ConfigError, match="must be one of quickstart, paper"):
        settings(tmp_path, "society=big")


@pytest.mark.parametrize("flags", [["--lst"], ["-l"], ["--list", "--seeds=[0]"]])
def test_an_option_that_there_is_not_starts_nothing(flags, tmp_path: Path, monkeypatch, caplog):
    started: list[object] = []
    monkeypatch.setattr(reproduction, "make_runs", started.append)
    assert reproduction.main([*flags, f"saves={tmp_path}", f"results={tmp_path}"]) == EXIT_FAULT
    assert not started
    assert f"error: {flags[-1]}: there is no such option" in caplog.text
    assert "--list, --report, --paper" in caplog.text


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
    command = [sys.executable, "-m", "comas.reproduction", "only=[constant]", "seeds=[0]"]
    command += ["num_steps=1", f"saves={saves}", f"results={tmp_path}"]

    def start() -> str:
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stderr

    said = start()
    assert "constant, seed 0 (1 of 1 to be made)" in said
    assert "held-out" in said
    report = (tmp_path / "report.md").read_text()
    assert "| constant (control) | the same reward for all |" in report
    [made] = saves.glob("*-constant-seed0")
    before = (made / "metrics.jsonl").stat().st_mtime
    said = start()
    assert "1 runs, 1 of them finished" in said
    assert "to be made" not in said
    assert (made / "metrics.jsonl").stat().st_mtime == before
    assert (tmp_path / "report.md").read_text() == report
