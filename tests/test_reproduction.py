"""Reproduction: rules and tables by hand-made results, plans on folders, one real run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
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
from comas.reproduction import claims, outcomes, runs
from comas.reproduction.__main__ import describe, save_report
from comas.reproduction.claims import (
    Claim,
    claims_of,
    decide,
    ends_above,
    every,
    keeps,
    learns,
    learns_more,
    leaves_less_than_half,
    no_gain,
    rises,
)
from comas.reproduction.experiments import LEARNING_RATES, PLANS, TUNED, TUNING_SEEDS
from comas.reproduction.frozen import FROZEN, Frozen, of_today
from comas.reproduction.report import claims_section, write_tuning
from comas.reproduction.results import (
    ALONG_TRAINING,
    GREEDY,
    SAMPLED,
    RunResult,
    as_table,
    read_result,
    read_results,
    write_results,
)
from comas.reproduction.runs import (
    PlannedRun,
    configurations,
    make_runs,
    plan_runs,
    seconds_of,
)
from comas.reproduction.settings import Settings, find_conflicts
from comas.reproduction.tables import (
    accuracy_table,
    effectiveness_table,
    machines_table,
    probe_table,
)
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
) -> RunResult:
    """Accuracies in percent; of solutions' rewards and the like their first and last means."""
    first, last = (dict.fromkeys(ALONG_TRAINING, value) for value in reward)
    before, after = (
        {
            **dict.fromkeys(ACCURACIES, value / 100),
            SAMPLED: value / 200,
            "probe/names": 0.6,
        }
        for value in (untrained, trained)
    )
    course = {0: untrained / 100, 60: 0.6, 300: trained / 100}
    return RunResult(experiment, seed, 60, 100.0, before, after, first, last, course)


def results(**gains: list[float]):
    return as_table(
        run(name, seed, trained=40.0 + gain)
        for name, of_seeds in gains.items()
        for seed, gain in enumerate(of_seeds)
    )


FIRST = f"agent_0/{GREEDY}"
ACCURACIES = (GREEDY, f"{GREEDY}/math", FIRST, f"{FIRST}/math")
LEARNS = Claim("it learns", "it does", needs=("comas",), decide=learns)
MORE = Claim(
    "it learns more",
    "in pairs",
    needs=("comas", "muted", "exchanged"),
    decide=learns_more("comas", "muted"),
)
HALF_RUN = {"comas": [30, 31, 32], "muted": [0, 0], "exchanged": [0]}


@pytest.fixture(autouse=True)
def in_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


# ---------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("rule", "gains", "outcome"),
    [
        # 19.5 ± 4.303 * 0.5 / sqrt(3) lies above 0.
        (learns, {"comas": [19, 19.5, 20]}, "reproduced"),
        (learns, {"comas": [0, 20, 40]}, "undecided"),
        (learns, {"comas": [-19, -19.5, -20]}, "contradicted"),
        # Each seed is compared with its own: differences 10, 11, 12 though gains differ by 30.
        (learns_more("a", "b"), {"a": [40, 25, 10], "b": [30, 14, -2]}, "reproduced"),
        (learns_more("b", "a"), {"a": [40, 25, 10], "b": [30, 14, -2]}, "contradicted"),
        (learns_more("a", "b"), {"a": [40, 25, 10], "b": [30, 45, -2]}, "undecided"),
        # Half of the gain is 20, 15, 10: more by 15, 14, 13.
        (leaves_less_than_half("a"), {"comas": [40, 30, 20], "a": [5, 1, -3]}, "reproduced"),
        (leaves_less_than_half("a"), {"comas": [40, 30, 20], "a": [19, 16, 9]}, "undecided"),
        (leaves_less_than_half("a"), {"comas": [-40, -40.5, -41], "a": [0, 0, 0]}, "contradicted"),
        # Accuracy was 60 after step 60; it may end 5 points lower.
        (keeps("a", since=60), {"a": [17, 18, 19]}, "reproduced"),
        (keeps("a", since=60), {"a": [13, 15, 18]}, "undecided"),
        (keeps("a", since=60), {"a": [12, 13, 12]}, "contradicted"),
        (no_gain("a", "b"), {"a": [1, 0, -1], "b": [2, 1, 0]}, "reproduced"),
        (no_gain("a", "b"), {"a": [1, 0, -1], "b": [9, 0, -9]}, "undecided"),
        (no_gain("a", "b"), {"a": [1, 0, -1], "b": [-9, -10, -11]}, "contradicted"),
        (
            every(learns, learns_more("comas", "a")),
            {"comas": [9, 9, 9], "a": [9, 0, 5]},
            "undecided",
        ),
    ],
)
def test_a_rule_decides_by_the_interval(rule, gains: dict[str, list[float]], outcome: str):
    assert rule(results(**gains))[0] == outcome


def test_a_rule_says_what_it_has_found_in_pairs_of_a_seed():
    found = as_table([run(seed=0), run(seed=1, trained=60.0), run("muted", 1, trained=41.0)])
    assert learns_more("comas", "muted")(found) == (
        "undecided",
        "comas over muted +19.0 [-inf, +inf]",
    )


def test_rewards_fall_rise_and_saturate_by_their_intervals():
    falling = as_table([run("a", 0, reward=(0.9, 0.8)), run("a", 1, reward=(0.9, 0.799))])
    key = "reward/solution"
    assert rises("a", key, falls=True)(falling)[0] == "reproduced"
    assert rises("a", key)(falling)[0] == "contradicted"
    assert rises("a", key)(falling)[1].startswith("solution -10.0")
    assert ends_above("a", key, bound=0.7)(falling)[0] == "reproduced"
    assert ends_above("a", key, bound=0.7995)(falling)[0] == "undecided"


@pytest.mark.parametrize(
    ("claim", "gains", "seeds", "outcome", "evidence"),
    [
        (LEARNS, {"comas": [30, 30]}, [0, 1], "reproduced", "gain +30.0 [+30.0, +30.0]"),
        (Claim("times", "needs GPUs"), {"comas": [30]}, [0], "not testable here", None),
        (MORE, {"comas": [30]}, [0], "not run", "missing: muted, exchanged"),
        (MORE, HALF_RUN, [0], "reproduced", None),
        (MORE, HALF_RUN, [0, 1, 2], "not run", "missing: muted (seed 2), exchanged (seeds 1, 2)"),
        (
            replace(LEARNS, by_construction="it must"),
            {"comas": [30, 30]},
            [0],
            "by construction",
            "gain +30.0 [+30.0, +30.0]; it must",
        ),
    ],
)
def test_a_claim_is_decided_when_every_seed_has_run(claim, gains, seeds, outcome, evidence):
    found, said = decide(claim, results(**gains), seeds=seeds)
    assert found == outcome
    assert evidence in (None, said)


def test_claims_of_the_paper_and_ours_are_counted_apart():
    found = results(comas=[30, 31])
    counted, table = claims_section([LEARNS, MORE], found, seeds=[0, 1])
    assert counted == "Of 2: 1 reproduced, 1 not run."
    assert "| it learns | it does | **reproduced** | gain +30.5 [+24.1, +36.9] |" in table
    assert {claim.source for claim in claims_of(PLANS["quickstart"])} == {"paper", "ours"}


# ---------------------------------------------------------------- numbers


def test_the_ends_of_a_run_are_means_of_ten_steps(tmp_path: Path):
    rows = [{"step": i, "reward/solution": float(i)} for i in range(31)]
    rows[0] |= {SAMPLED: 0.1, GREEDY: 0.0, "probe/names": 0.5, "time/validation_s": 2.0}
    rows[30] |= {SAMPLED: 0.4, GREEDY: 0.8, "probe/names": 0.6, "time/step_s": 3.0}
    rows[1]["reward/solution"] = None
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_result(tmp_path, PLANS["quickstart"].experiments[0], seed=3)
    assert found.first["reward/solution"] == 6.0  # of 2 to 10
    assert found.last["reward/solution"] == 25.5
    assert found.last["train/accuracy"] is None
    assert found.before == {SAMPLED: 0.1, GREEDY: 0.0, "probe/names": 0.5}
    assert (found.after[GREEDY], found.num_steps, found.seconds) == (0.8, 30, 5.0)
    assert found.course == {0: 0.0, 30: 0.8}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(rows[0]) + "\n")
    with pytest.raises(ValueError, match="holds 1 validations; two"):
        read_result(tmp_path, PLANS["quickstart"].experiments[0], seed=3)


@pytest.mark.parametrize("society", PLANS)
def test_every_experiment_has_a_configuration_and_every_claim_its_experiments(society):
    plan = PLANS[society]
    for experiment in plan.experiments:
        assert load_config(REPOSITORY / experiment.config, experiment.overrides).seed == 0
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


def test_a_row_has_means_and_what_comas_gains_more():
    found = results(comas=[30, 20, 25], muted=[2, 1, 3])
    known = [e for e in PLANS["quickstart"].experiments if e.name in ("comas", "muted")]
    table = accuracy_table(found, known).splitlines()
    assert "| 40.0 ± 0.0 | 65.0 ± 5.0 | +25.0 ± 5.0 |  | 20.0 ± 0.0 | 32.5 ± 2.5 | 3 |" in table[2]
    # 28, 19, 22: mean 23, standard deviation 4.58.
    assert "| +2.0 ± 1.0 | +23.0 [+11.6, +34.4] |" in table[3]
    assert "| comas | 60 -> 60 |" in probe_table(found, known)
    assert "| 50 -> 60 |" in effectiveness_table(found, known)


def test_the_best_learning_rate_is_kept():
    ended = {"comas": {5e-5: [60.0, 70.0], 1e-4: [80.0, 40.0]}, "srlm": {1e-4: [10.0]}}
    page = write_tuning(ended, heading="here")
    # Variances 50 and 800: 20.6 points; 5 seeds find (2.776 + 0.941) / sqrt(5) times that.
    assert "| comas | 65.0 ± 7.1 | 60.0 ± 28.3 | 5e-05 | 20.6 | 34 |" in page
    assert "| srlm |  | 10.0 | 0.0001 | 0.0 | 34 |" in page


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
    assert "were frozen on 20" in (tmp_path / "results/report.md").read_text()
    path = tmp_path / "results" / FROZEN
    frozen = json.loads(path.read_text())
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
    chosen = settings(tmp_path, *reproduction.TUNING[:3])
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
    with pytest.raises(ConfigError, match="must be one of quickstart, paper, lasting"):
        settings(tmp_path, "study=big")


@pytest.mark.parametrize("flags", [["--lst"], ["-l"], ["--list", "--seeds=[0]"]])
def test_an_option_that_there_is_not_starts_nothing(flags, tmp_path: Path, monkeypatch, caplog):
    started: list[object] = []
    monkeypatch.setattr(reproduction, "make_runs", started.append)
    assert reproduction.main([*flags, f"saves={tmp_path}", f"results={tmp_path}"]) == EXIT_FAULT
    assert not started
    assert f"error: {flags[-1]}: there is no such option" in caplog.text
    assert "--list, --report, --paper, --lasting, --freeze, --tune" in caplog.text


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
