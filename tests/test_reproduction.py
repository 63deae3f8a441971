"""Studies: planned and finished runs, comparisons, reports."""

import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from small_runs import REPOSITORY, write_records, written
from tables import case_file, cases, pairs

from comas.config import config_as_yaml, load
from comas.config.errors import ConfigError
from comas.preflight.configuration import load_config
from comas.reproduction import __main__ as reproduction
from comas.reproduction import report
from comas.reproduction.results import (
    Record,
    RunResult,
    ends,
    machine_of,
    paired_runs,
    read_records,
    read_result,
    write_record,
)
from comas.reproduction.runs import PlannedRun, make_runs, plan_runs
from comas.reproduction.study import Study, find_conflicts
from comas.run.seals import Origin, write_seal
from comas.utils.terminal import EXIT_ERROR
from configs.studies import over_questions

STUDIES = sorted((REPOSITORY / "configs/studies").glob("*.yaml"))
GREEDY, SAMPLED, REWARD = "validation/greedy/accuracy", "validation/accuracy", "reward/solution"
TWO = ["only=[comas,muted]", "seeds=[0,1]"]


@pytest.fixture(autouse=True)
def in_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


def plan(tmp_path: Path, *overrides: str) -> list[PlannedRun]:
    study = load(Study, Path(reproduction.QUICKSTART), overrides, check=find_conflicts)
    return plan_runs(study, tmp_path / "saves")


def begin(run: PlannedRun, *, finished: bool = True, trained: float = 0.5, setting: str = ""):
    folder = run.saves / f"20260101-000000-{run.name}"
    (folder / "models").mkdir(parents=True)
    config = load_config(run.config, [*run.overrides, *filter(None, [setting])])
    (folder / "config.yaml").write_text(config_as_yaml(config))
    rows = [{"step": 0, SAMPLED: 0.2, GREEDY: 0.4}, {"step": 1, SAMPLED: 0.3, GREEDY: trained}]
    write_records(folder / "metrics.jsonl", rows)
    process = {"started": "2099-01-01", "cpu": "ours", "gpus": ["NVIDIA H200, 143771 MiB"]}
    versions = [process | {"git": {"commit": "0123456789", "dirty": False}}]
    (folder / "versions.json").write_text(json.dumps(versions))
    if finished:
        (folder / "models/step").write_text("1\n")
    return folder


def result(experiment: str, seed: int, before: float | None, after: float | None) -> RunResult:
    return RunResult(experiment, seed, 60, {GREEDY: before}, {GREEDY: after}, ["abcdef0"])


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_experiment_of_a_shipped_study_can_be_trained(path, tmp_path):
    study = load(Study, path, ["seeds=[3]"], check=find_conflicts)
    planned = plan_runs(study, tmp_path)
    assert [run.experiment for run in planned] == list(study.experiments)
    assert {load_config(run.config, run.overrides).seed for run in planned} == {3}
    assert study.reference in study.experiments


def test_wrong_studies_are_refused_with_what_is_allowed(tmp_path):
    for wrong, told in pairs("config", "a study"):
        with pytest.raises(ValueError, match=f"(?s){told}"):
            plan(tmp_path, wrong)
    with pytest.raises(ConfigError, match="names none"):
        load(Study, None, [], check=find_conflicts)


def test_a_configuration_lies_beside_its_study(tmp_path):
    (tmp_path / "mine.yaml").write_text("base: configs/quickstart.yaml\ntraining: {num_steps: 9}\n")
    study = replace(
        Study(),
        experiments={"a": "mine.yaml training.num_steps=7 'rollout.system_prompt=a b'"},
        settings="training.num_steps=2",
    )
    run = plan_runs(study, tmp_path, tmp_path)[0]
    assert run.config == tmp_path / "mine.yaml"
    assert load_config(run.config, run.overrides).rollout.system_prompt == "a b"
    assert load_config(run.config, run.overrides).training.num_steps == 2


def test_the_plan_knows_what_is_finished_and_refuses_a_run_of_other_settings(tmp_path, caplog):
    planned = plan(tmp_path, *TWO)
    labels = ["comas, seed 0", "muted, seed 0", "comas, seed 1", "muted, seed 1"]
    assert [run.label for run in planned] == labels
    begin(planned[0], setting="policy.zero_stage=0")  # left to the machine
    begin(planned[1], finished=False)
    (begin(planned[2]) / "num_steps").write_text("2\n")  # a resume with more steps was stopped
    assert planned[2].finished is None
    shutil.rmtree(planned[2].folder)
    versions = tmp_path / "saves" / planned[0].folder.name / "versions.json"
    command = {"command": ["/gone/comas/__main__.py"]}
    versions.write_text(json.dumps([json.loads(versions.read_text())[0] | command]))
    kept = versions.with_name("config.yaml")
    kept.write_text(kept.read_text().replace(f"{REPOSITORY}/", "/gone/"))
    moved = (tmp_path / "saves").rename(tmp_path / "moved")
    known = ["metrics=[validation/accuracy,agent_0/policy/loss,mistyped]", f"saves={moved}"]
    assert reproduction.main(["--list", *TWO, *known]) == 0
    assert re.findall(r"metrics: (\S+) is not listed", caplog.text) == ["mistyped"]
    assert "4 runs, 1 of them finished" in caplog.text
    for line in ("comas, seed 0                finished ", "muted, seed 1                -"):
        assert line in caplog.text
    assert "muted, seed 0                step 1    configs/quickstart/muted.yaml" in caplog.text
    begin(planned[3], setting="algorithm.clip_epsilon_high=0.3")  # null, but not by the machine
    with pytest.raises(ValueError, match=r"clip_epsilon_high: 0.3 -> null"):
        plan(tmp_path, *TWO)
    begin(planned[2], setting="training.num_steps=7")
    with pytest.raises(ValueError, match=r"other settings \(training.num_steps: 7 -> 60\); remove"):
        plan(tmp_path, *TWO)


def test_runs_of_other_questions_or_models_are_refused_or_told(tmp_path, monkeypatch, caplog):
    files = "settings=data.train=a.jsonl data.validation=b.jsonl society.models=[m]"
    seeds, arms = ["only=[muted]", "seeds=[0,1]", files], ["only=[comas,muted]", "seeds=[0]", files]

    def begun(run: PlannedRun, key: str, digest: str) -> None:
        write_seal(begin(run), Origin("run", {}, inputs={key: digest}), b"key")

    for key in ("data.train", "m"):
        first, second = plan(tmp_path / key, *seeds)
        begun(first, key, "a")
        trains = lambda *_, run=second, key=key, **__: begun(run, key, "b")  # noqa: E731
        monkeypatch.setattr(reproduction, "make_runs", trains)
        assert reproduction.main([*seeds, f"saves={first.saves}"]) == EXIT_ERROR
        assert f"muted-seed1 had other contents of {key} than" in caplog.text
    for run, digest in zip(plan(tmp_path, *arms), ("a", "b"), strict=True):
        begun(run, "data.validation", digest)
    plan(tmp_path, *arms)
    assert "validated on other questions than earlier runs" in caplog.text


@pytest.mark.stack
def test_begun_runs_go_on_and_a_failure_is_told_with_its_log(tmp_path, monkeypatch, caplog):
    planned = plan(tmp_path, "only=[muted]", "seeds=[0,1,2]", "settings=training.num_steps=9")
    begin(planned[0])
    begun = begin(planned[1], finished=False)
    training = tmp_path / "training"
    training.write_text('#!/bin/sh\necho "$@"\nbegun=${3#resume=}\necho 1 > "$begun/models/step"\n')
    training.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(training))
    log = tmp_path / "saves/muted-seed2.log"
    said = rf"muted, seed 2 ended with status [12]; .* is in {log}"
    assert make_runs(planned, metric=GREEDY) == 1
    assert re.search(said, caplog.text)
    with pytest.raises(RuntimeError, match=said):  # two failures in a row
        make_runs([replace(planned[2], seed=3), planned[2]], metric=GREEDY)
    assert not (tmp_path / "saves/muted-seed0.log").exists()
    assert (tmp_path / "saves/muted-seed1.log").read_text() == f"-m comas resume={begun}\n"
    settings = f"training.num_steps=9 seed=2 name=muted-seed2 saves={tmp_path / 'saves'}"
    assert log.read_text().startswith(f"-m comas {planned[2].config} {settings}\n")


def test_a_metric_of_validations_has_two_values_and_one_of_steps_two_means(tmp_path):
    rows = [{"step": i, REWARD: float(i)} for i in range(31)]
    rows[0] = {"step": 0, GREEDY: 0.0, SAMPLED: None}
    rows[20][GREEDY], rows[30][GREEDY] = 0.9, 0.8
    rows[1][REWARD] = rows[30][REWARD] = None  # of 2 to 10, and of 21 to 29
    assert [ends(rows, GREEDY), ends(rows, REWARD)] == [(0.0, 0.8), (6.0, 25.0)]
    rows[30][SAMPLED] = 0.5
    assert ends(rows, SAMPLED) == (None, 0.5)
    assert ends(rows, "reward/evaluation") == (None, None)
    assert ends(rows[2:7], REWARD) == (2.5, 5.5)  # of two halves: 2 and 3, and 5 and 6
    write_records(tmp_path / "metrics.jsonl", rows)
    (tmp_path / "versions.json").write_text(json.dumps([{"git": None}]))
    found = read_result(tmp_path, "comas", seed=3, metrics=[GREEDY, REWARD])
    assert (found.before, found.after) == ({GREEDY: 0.0, REWARD: 6.0}, {GREEDY: 0.8, REWARD: 25.0})
    assert found.num_steps == 30


@pytest.mark.stack
def test_each_ctrl_c_reaches_the_run_which_is_waited_for(tmp_path, monkeypatch):
    program = written(tmp_path / "program", case_file("reproduction")["ENDS_AT_THE_SECOND"])
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    told = tmp_path / "told"
    [run] = plan(tmp_path, "only=[comas]", "seeds=[0]")
    run.saves.mkdir()

    def press_twice() -> None:
        for times in (1, 2):
            while not told.exists() or len(told.read_text().splitlines()) < times:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_twice, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        make_runs([run], metric=GREEDY)
    assert told.read_text() == "begun\ntold\ntold\n"


def test_a_runs_change_is_told_over_its_questions_and_what_it_saw(tmp_path, capsys, monkeypatch):
    rights = {0: "wrong wrong correct wrong", 4: "correct correct correct wrong"}
    for step, verdicts in rights.items():
        answers = [
            {"question_id": f"q{i}", "agent": 0, "sampling": kind, "verdict": verdict}
            for i, verdict in enumerate(verdicts.split())
            for kind in (over_questions.GREEDY, over_questions.SAMPLED)
        ]
        write_records(tmp_path / f"validations/step_{step:04}.jsonl", answers)
    for step in range(1, 13):  # right is paid, then wrong is
        solution = {"turn_id": "r0.s0", "role": "solution", "response": "6: equal\u2028"}
        held = [
            {"discussion_id": f"{step}/{verdict}", "question_id": f"{step}"}
            | {"turns": [solution | {"verdict": verdict, "reward": reward}]}
            for verdict, reward in {"correct": float(step < 7), "wrong": float(step > 6)}.items()
        ]
        lines = [json.dumps(row, ensure_ascii=False) for row in held]
        write_records(tmp_path / f"discussions/step_{step:04}.jsonl", lines)
    words = [str(tmp_path), "--steps", "1-6", "7-12", "--holding", "equal"]
    monkeypatch.setattr(sys, "argv", ["over_questions", *words])
    over_questions.main()
    # Changes of 100, 100, 0, 0: deviation 57.7, times 3.182 / sqrt(4) is 91.9.
    said = " ".join(capsys.readouterr().out.split())
    assert "greedy agent 0 25.0 75.0 +50.0 [-41.9, +141.9] 4 questions" in said
    assert re.search(r"1 to 6: AUC 1.00.*, 12 solutions 100.0 % hold 'equal'; 0.0 % hold it", said)
    assert re.search(r"7 to 12: AUC 0.00.*, 12 solutions 100.0 % .*; 50.0 % hold it", said)


@cases("differences, said, excludes_zero")
def test_an_interval_is_students_over_seeds(differences, said, excludes_zero):
    found = report.interval(differences)
    assert (found.told(1).strip("*"), found.excludes_zero) == (said, excludes_zero)


def test_experiments_are_compared_seed_by_seed():
    numbers = {
        "comas": [(0.4, 0.70), (0.4, 0.60), (0.4, 0.65)],
        "muted": [(0.4, 0.42), (0.4, 0.41), (0.4, 0.43)],
        "alone": [(0.1, 0.35), (0.1, None)],
        "other": [(None, None)],
    }
    results = {
        name: {seed: result(name, seed, *ends) for seed, ends in enumerate(of_seeds)}
        for name, of_seeds in numbers.items()
    }
    assert report.comparison_table(results, GREEDY, reference="comas").splitlines() == [
        "| experiment | before | after | rise over comas |",
        "| --- | --- | --- | --- |",
        "| comas | 40.0 ± 0.0 | 65.0 ± 5.0 |  |",
        # -28, -19, -22: mean -23, standard deviation 4.58, times 4.303 / sqrt(3) is 11.4.
        "| muted | 40.0 ± 0.0 | 42.0 ± 1.0 | **-23.0 [-34.4, -11.6]** |",
        "| alone (1 of 2 seeds) | 10.0 | 35.0 |  |",
    ]
    with pytest.raises(ValueError, match="no run has the metric validation/acuracy"):
        report.comparison_table(results, "validation/acuracy", reference="comas")
    del results["other"]
    assert report.share_table(results, GREEDY, bound="comas").splitlines()[2:] == [
        # 2 of 30, 1 of 20, 3 of 25: mean 7.89, standard deviation 3.66, times 4.303 / sqrt(3) is
        # 9.1, and for two at once, t(0.9875, 2) being 6.205, 13.1.
        "| muted | 7.9 | [-1.2, 17.0] | [-5.2, 21.0] | 6.7, 5.0, 12.0 |",
        "| alone | 83.3 | [-inf, inf] | [-inf, inf] | 83.3 |",
    ]
    # Where the bound falls with a seed, a fall is no share of its gain.
    results["comas"][3] = RunResult("comas", 3, 1, {GREEDY: 0.4}, {GREEDY: 0.3})
    results["muted"][3] = results["comas"][3]
    assert "| muted" not in report.share_table(results, GREEDY, bound="comas")


def test_runs_of_two_machines_are_not_compared():
    """The quick-start's agents differ between machines before the first step."""
    results = {
        "comas": {0: result("comas", 0, 0.4, 0.6), 1: result("comas", 1, 0.4, 0.6)},
        "muted": {0: result("muted", 0, 0.4, 0.5), 1: result("muted", 1, 0.4, 0.5)},
    }
    assert len(paired_runs(results, "muted", "comas")) == 2
    results["comas"][1] = replace(results["comas"][1], machine="B")
    assert paired_runs(results, "muted", "comas") == [(results["muted"][0], results["comas"][0])]
    assert report.rises_more(results, GREEDY, "muted", "comas") is None  # of one pair
    assert report.shares_of_gain(results, GREEDY, "muted", "comas") == [pytest.approx(50)]


def test_a_figure_shows_each_seed_the_mean_and_its_interval():
    page = report.figure({"one": [42.0], "a<b": [86.0, 87.0, 88.0]}, title="accuracy")
    # 420 pixels from 40 to 90 percent, after 190; rows of 22 below 34.
    assert 'cx="206.8" cy="45"' in page
    assert [f'cx="{x}" cy="67"' in page for x in (576.4, 584.8, 593.2)] == [True] * 3
    assert 'x1="563.9" x2="605.7" y1="67" y2="67"' in page  # 87 +- 4.303 / sqrt(3)
    assert ">a&lt;b</text>" in page


def test_a_report_is_of_the_runs_that_are_finished_and_names_the_others(tmp_path, caplog):
    where = [f"saves={tmp_path / 'saves'}", f"results={tmp_path / 'results'}"]
    words = ["--report", *TWO, "bound=comas", f"metrics=[{GREEDY},{SAMPLED}]", *where]
    assert reproduction.main(words) == EXIT_ERROR
    assert "no run is finished" in caplog.text
    planned = plan(tmp_path, *TWO)
    for run in planned[:3]:
        begin(run, trained=0.4 if run.experiment == "muted" else 0.5)
    assert reproduction.main(words) == 0
    page = (tmp_path / "results/report.md").read_text()
    assert "](figure.svg)" in page
    assert "| comas | 40.0 ± 0.0 | 50.0 ± 0.0 |  |" in page and f"## {SAMPLED}" in page
    assert "The rise as a share of that under comas with the same seed" in page
    assert "**Not finished: muted (seed 1).**" in page and "; code 0123456. **Not" in page
    assert [each.machine for each in read_records(tmp_path / "results")] == ["NVIDIA H200"]
    # A run that is still to come may have it.
    assert reproduction.main([*words, f"metrics=[{GREEDY},majority/share]"]) == 0
    page = (tmp_path / "results/report.md").read_text()
    assert "## majority/share\n\nNo finished run has it." in page
    begin(planned[3], setting="cluster.device=cpu", finished=False)
    assert machine_of(planned[3].folder) == "ours"
    (planned[3].folder / "versions.json").unlink()
    with pytest.raises(ValueError, match=r"versions.json is missing: restore it"):
        machine_of(planned[3].folder)
    # What another machine has made stands beside it, and is never overwritten.
    other_runs = [result("muted", 1, 0.4, 0.4), result("muted", 7, 0, 1)]
    of_muted, kl = ["configs/quickstart/muted.yaml"], "algorithm.kl_coef=0.5"
    other_runs = [replace(run, words=of_muted) for run in other_runs]
    other_runs += [replace(other_runs[0], seed=0, words=[*of_muted, kl])]
    theirs = Record("theirs", "2026-02-02", other_runs)
    write_record(tmp_path / "results", theirs)
    shutil.rmtree(tmp_path / "saves")
    begin(planned[0])
    assert reproduction.main(words) == 0
    page = (tmp_path / "results/report.md").read_text()
    assert "runs: 3 on NVIDIA H200, 2099-01-01; 1 on theirs, 2026-02-02; code 01234" in page
    assert "**The runs are of different" in page and "**Not finished" not in page
    # What would be started otherwise today is kept, and not compared.
    shutil.copytree(tmp_path / "results", tmp_path / "other")
    changed = [*words, f"settings={kl}", f"saves={tmp_path / 'none'}"]
    caplog.clear()
    assert reproduction.main([*changed, f"results={tmp_path / 'other'}"]) == 0
    assert "nvidia-h200.json: 3 runs were started otherwise: not in the report" in caplog.text
    page = (tmp_path / "other/report.md").read_text()
    assert "runs: 1 on theirs, 2026" in page and "comas (seed 0, 1); muted (seed 1)" in page
    assert read_records(tmp_path / "other") == read_records(tmp_path / "results")
    # Numbers outlast their runs.
    shutil.rmtree(tmp_path / "saves")
    before = read_records(tmp_path / "results")
    assert theirs in before and reproduction.main(words) == 0
    assert read_records(tmp_path / "results") == before


@pytest.mark.stack
def test_the_run_under_way_ends_with_its_driver(tmp_path, monkeypatch):
    training = tmp_path / "training"
    ends = f"echo $$ > {tmp_path}/pid\nsleep 0.5\nkill -INT $PPID\nexec sleep 60\n"
    training.write_text(f"#!/bin/sh\n{ends}")
    training.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(training))
    with pytest.raises(KeyboardInterrupt):
        make_runs(plan(tmp_path, "only=[comas]", "seeds=[0]"), metric=GREEDY)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
