"""When a run ends early, what it keeps, and that a kill changes nothing about it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from config_faults import only_fault
from scripted_agents import ScriptedAgents
from small_runs import REPOSITORY, record, rows_of, write_records

from comas import __main__ as command
from comas import train as driver
from comas.config.faults import ConfigError
from comas.engines.cluster.supervision import Recoveries
from comas.preflight.configuration import load_config
from comas.preflight.sizes import derive_sizes, describe_sizes
from comas.preflight.survey import needed_bytes, prepare
from comas.run import RunDirectory, bookkeeping
from comas.run.directory import BEST, trained_steps
from comas.run.pages.run_report import report_source
from comas.run.records import read_rows
from comas.run.stopping import Condition, Stopping, best_step, parse_condition, stop_reason
from comas.types import Request, TrainingSample, UpdateStats

QUICKSTART = REPOSITORY / "configs/quickstart.yaml"
ACCURACY = "validation/accuracy"


def config(*overrides: str) -> Any:
    return load_config(QUICKSTART, list(overrides))


def rows(metric: str, *values: float | None) -> list[dict[str, Any]]:
    """Those of the steps 0, 1, 2, ..."""
    return [{"step": step, metric: value} for step, value in enumerate(values)]


# ---------------------------------------------------------------- conditions


def test_a_condition_is_read_with_its_relation_its_bound_and_how_long():
    assert parse_condition("a/b > 0.5 for 10") == Condition("a/b", ">", 0.5, 10)
    assert parse_condition("agent_0/policy/entropy<=1e-3 for 1").relation == "<="
    assert str(parse_condition("a  <  2 for 3")) == "a < 2 for 3"
    assert str(parse_condition("a < 2  over 3")) == "a < 2 over 3"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a > 0.5", "for N or over N"),
        ("a = 1 for 2", "a relation"),
        ("a > x for 2", "x, which is not a number"),
        ("a > nan for 2", "nan, which is not a number"),
        ("a > 1 for 0", "1 value at least"),
        ("__import__('os') > 1 for 2", "is not a metric"),
    ],
)
def test_what_is_no_condition_is_a_fault_of_the_configuration(text: str, said: str):
    fault = only_fault(f'training.stop_when=["{text}"]', file=QUICKSTART)
    assert "training.stop_when" in fault and said in fault
    assert 'write "scoring/invalid_rate > 0.5 for 10"' in fault


@pytest.mark.parametrize(
    ("span", "values", "ends"),
    [
        ("for", [0.9, 0.9], False),  # step 0 is no step of training: one value
        ("for", [0.1, 0.9, 0.9], True),
        ("for", [0.1, 0.9, 0.5, 0.9], False),
        ("for", [0.1, 0.9, None, 0.9], True),  # a step that has no value says nothing
        ("for", [0.1, 0.9, float("nan"), 0.9], True),  # written as null
        ("for", [0.1, 0.9, 0.9, 0.1], False),
        ("over", [0.9, 0.9], False),
        ("over", [0.1, 0.3, 0.8], True),  # a mean of 0.55
        ("over", [0.1, 0.8, None, 0.1], False),  # of 0.45
        ("over", [0.1, 0.1, 0.9, 0.3], True),
    ],
)
def test_a_condition_ends_a_run_once_its_latest_values_or_their_mean_meet_it(span, values, ends):
    found = stop_reason(config(f'training.stop_when=["x > 0.5 {span} 2"]'), rows("x", *values))
    assert found == (f"x > 0.5 {span} 2 (training.stop_when)" if ends else None)


def test_a_run_ends_only_right_after_an_update_of_every_policy():
    pairs = ("training.save_every=6", "society.update_every=[2,3]")
    asked = config('training.stop_when=["x > 0 for 1"]', *pairs)
    ends = [stop_reason(asked, rows("x", *[1.0] * (step + 1))) is not None for step in range(13)]
    assert [step for step, does in enumerate(ends) if does] == [6, 12]


# ---------------------------------------------------------------- the best


def test_the_best_step_is_the_first_of_the_highest_values():
    assert best_step(rows("x", 0.25, None, 0.5, 0.5, float("nan")), "x") == 2
    assert best_step(rows("x", 0.5), "y") is None


def test_a_best_that_cannot_be_kept_is_refused_with_the_remedy():
    intervals = ("training.validate_every=5", "society.update_every=[1,2]")
    with pytest.raises(ConfigError, match=r"set training\.validate_every to a multiple of 2"):
        config(f"training.keep_best={ACCURACY}", *intervals)


def test_a_metric_that_the_run_does_not_measure_ends_it_as_soon_as_that_is_known():
    watched = Stopping(config("training.keep_best=validation/accuracy/maths"), [])
    with pytest.raises(ValueError, match=r"keep_best names .*maths, .*validation/accuracy/math "):
        watched.see({"step": 0, "validation/accuracy/math": 0.5, "time": 1.0})
    watched = Stopping(config('training.stop_when=["scoring/invalid > 1 for 2"]'), [])
    watched.see({"step": 0, ACCURACY: 0.5})
    with pytest.raises(ValueError, match=r"stop_when names .*close to it are scoring/invalid_rate"):
        watched.see({"step": 1, "scoring/invalid_rate": 0.0})


def test_the_first_lines_of_a_run_say_what_may_end_it_and_the_disk_holds_one_checkpoint_more():
    plain = config()
    asked = config(
        f"training.keep_best={ACCURACY}",
        'training.stop_when=["x > 1 for 2"]',
    )
    lines = describe_sizes(asked, derive_sizes(asked, num_questions=2400))
    assert f"best: the checkpoint of the highest {ACCURACY} is kept as well" in lines
    assert "may end early: x > 1 for 2" in lines
    one = needed_bytes([10**9, 0], plain, num_kept=0) - needed_bytes([10**9, 0], plain, num_kept=1)
    more = needed_bytes([10**9, 0], asked, num_kept=0) - needed_bytes([10**9, 0], plain, num_kept=0)
    assert more == one > 0


# ---------------------------------------------------------------- what a folder keeps


def keeping_run(tmp_path: Path, values: Sequence[float]) -> Path:
    """One with a validation and a checkpoint after every step, of which the newest is kept."""
    settings = ["training.keep_checkpoints=1", f"training.keep_best={ACCURACY}"]
    with RunDirectory.create(config(f"saves={tmp_path}", *settings)) as run:
        for step, value in enumerate(values):
            run.log_metrics(step, {ACCURACY: value})
            if step:
                with run.checkpoint_folder(step) as folder:
                    (folder / "state").write_text(str(step))
    return run.path


def kept(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def opened(path: Path) -> RunDirectory:
    return RunDirectory.open(load_config(None, [f"resume={path}"]))


def test_the_best_checkpoint_is_kept_beside_the_newest(tmp_path: Path):
    path = keeping_run(tmp_path, [0.1, 0.2, 0.6, 0.4, 0.5])
    assert kept(path) == ["step_0002", "step_0004"]
    with opened(path) as run:
        assert run.best_checkpoint() == (2, path / "checkpoints/step_0002")
        found = run.latest_checkpoint()
        assert found is not None and found[0] == 4


def test_where_no_best_checkpoint_is_it_is_said_why(tmp_path: Path):
    path = keeping_run(tmp_path / "a", [0.5, 0.2])
    with opened(path) as run, pytest.raises(ValueError, match="those that the run began with"):
        run.best_checkpoint()
    path = keeping_run(tmp_path / "b", [0.1, 0.5])
    (path / "checkpoints/step_0001").rename(path / "elsewhere")
    with opened(path) as run, pytest.raises(ValueError, match="was best in step 1"):
        run.best_checkpoint()
    (path / "elsewhere/state").write_text("other")
    (path / "elsewhere").rename(path / "checkpoints/step_0001")
    with opened(path) as run, pytest.raises(ValueError, match="is not what was written"):
        run.best_checkpoint()
    with (
        RunDirectory.create(config(f"saves={tmp_path}")) as run,
        pytest.raises(ValueError, match=r"training\.keep_best is null"),
    ):
        run.best_checkpoint()


# ---------------------------------------------------------------- whole runs


class KilledAgents(ScriptedAgents):
    """A society whose process is killed in the update of a step."""

    def __init__(self, killed_in: int | None) -> None:
        super().__init__(Recoveries(0))
        self._killed_in = killed_in

    def begin_update(
        self, buffers: Mapping[int, Sequence[TrainingSample]], *, step: int
    ) -> Callable[[], dict[int, UpdateStats]]:
        if step == self._killed_in:
            raise KeyboardInterrupt
        return super().begin_update(buffers, step=step)


ACCURACIES = [0.1, 0.2, 0.5, 0.7, 0.6, 0.7, 0.5, 0.9, 0.9]
"""By how often the weights were updated: the best before the end is after 3."""
REASON = f"{ACCURACY} > 0.45 for 5"
ENDING_EARLY = (
    "training.num_steps=8",
    "training.save_every=4",
    "training.keep_checkpoints=1",
    "training.validate_every=1",
    f"training.keep_best={ACCURACY}",
    f'training.stop_when=["{REASON}"]',
    "rollout.batch_size=2",
    "cluster.device=cpu",
)


def play(
    monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], *, killed_in: int | None = None
) -> Path:
    """Let a scripted society run, as the command would; returns its folder."""

    def validate(*args: Any, generate: Any, **others: Any) -> dict[str, float]:
        value = ACCURACIES[generate.__self__.weights]
        return {ACCURACY: value, **{f"agent_{agent}/{ACCURACY}": value for agent in range(2)}}

    monkeypatch.setattr(bookkeeping, "validate_agents", validate)
    monkeypatch.setattr(driver, "agents_of", lambda *_: KilledAgents(killed_in))
    resumes = any(argument.startswith("resume=") for argument in arguments)
    prepared = prepare(load_config(None if resumes else QUICKSTART, arguments))
    begin = RunDirectory.open if resumes else RunDirectory.create
    with begin(prepared.config) as run:
        try:
            driver.train(prepared, run)
        except KeyboardInterrupt:
            assert killed_in is not None
    return run.path


@pytest.mark.stack
def test_gold_answers_are_on_record_and_reach_neither_prompts_nor_rewards(
    saves, tmp_path, monkeypatch
):
    prompts: list[str] = []
    generate = ScriptedAgents.generate

    async def noting(self: ScriptedAgents, request: Request) -> Any:
        prompts.append(request.prompt)
        return await generate(self, request)

    monkeypatch.setattr(ScriptedAgents, "generate", noting)
    sizes = ("rollout.batch_size=2", "training.num_steps=2", "cluster.device=cpu")
    left = []
    for gold in ("91827", "73645"):
        known = [record(i, answer=f"{gold}{i}") for i in range(4)]
        questions = write_records(tmp_path / f"{gold}.jsonl", known)
        path = play(
            monkeypatch, [f"saves={saves}", f"name={gold}", f"data.train={questions}", *sizes]
        )
        files = sorted((path / "discussions").iterdir())
        records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        assert {of["question_id"]: of.pop("gold") for of in records} == {
            f"gsm8k-{i}": f"{gold}{i}" for i in range(4)
        }
        scorings = [t for of in records for t in of["turns"] if t["role"] == "scoring"]
        assert scorings and {turn["score"] for turn in scorings} == {1}
        left.append(records)
    assert left[0] == left[1]  # verdicts, which are all "wrong", included
    assert prompts and not any(gold in prompt for prompt in prompts for gold in ("91827", "73645"))


def left_by(run: Path) -> dict[str, Any]:
    """What a run computed: everything but times, seals, logs and cards."""
    files = {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in ("discussions", "tokens", "checkpoints", "models")
        for path in (run / part).rglob("*")
        if path.is_file() and path.name not in ("seal.json", "README.md")
    }
    told = [
        {name: value for name, value in row.items() if not name.startswith("time/")}
        for row in read_rows(run / "metrics.jsonl")
    ]
    return {"rows": told, **files}


@pytest.mark.stack
def test_a_run_that_ends_early_is_finished_and_says_why(saves, monkeypatch, caplog):
    caplog.set_level("INFO")
    path = play(monkeypatch, [f"saves={saves}", "name=early", *ENDING_EARLY])
    reason = f"{REASON} (training.stop_when)"
    assert f"ended after step 6 of 8: {reason}" in caplog.text
    assert trained_steps(path) == 6
    assert (path / "models/agent_0/weights").read_text() == "6"
    assert kept(path) == ["step_0003", "step_0006"]
    asked = load_config(path / "config.yaml", [])
    assert stop_reason(asked, read_rows(path / "metrics.jsonl")) is not None
    sizes = dict(report_source(path).tables[1].rows)
    assert sizes["ended early, by"].startswith(reason)
    assert sizes[f"step of the best {ACCURACY}"] == 3
    whole = left_by(path)
    caplog.clear()
    play(monkeypatch, [f"resume={path}"])
    assert f"nothing to train: this run ended after step 6 of 8: {reason}" in caplog.text
    shutil.rmtree(path / "models")  # are written again, and no step more is trained
    play(monkeypatch, [f"resume={path}"])
    assert left_by(path) == whole


@pytest.mark.stack
@pytest.mark.parametrize(("killed_in", "staleness"), [(4, 0), (6, 1), (5, 2)])
def test_a_run_that_was_killed_ends_as_one_that_nobody_disturbed(
    saves, monkeypatch, killed_in: int, staleness: int
):
    ahead = [f"training.max_staleness={staleness}", "algorithm.rollout_correction=ratio"]
    settings = [f"saves={saves}", *ENDING_EARLY, *ahead]
    undisturbed = play(monkeypatch, [*settings, f"name=undisturbed-{staleness}"])
    name = f"name=killed-{killed_in}-{staleness}"
    path = play(monkeypatch, [*settings, name], killed_in=killed_in)
    stale = [row["rollout/staleness"] for row in read_rows(path / "metrics.jsonl")[1:]]
    assert stale == [min(step, staleness) for step in range(len(stale))]
    assert trained_steps(path) is None
    play(monkeypatch, [f"resume={path}"])
    assert left_by(path) == left_by(undisturbed)


@pytest.mark.stack
def test_a_run_that_ended_early_gives_its_best_models_and_goes_on_with_other_settings(
    saves, monkeypatch
):
    path = play(monkeypatch, [f"saves={saves}", "name=on", *ENDING_EARLY])
    monkeypatch.setattr(command, "agents_of", lambda *_: KilledAgents(None))
    assert command.main(["--export-best", f"resume={path}"]) == 0
    assert (path / "best/agent_1/weights").read_text() == "3"
    assert "for 3 steps" in (path / "best/agent_1/README.md").read_text()
    assert (trained_steps(path), trained_steps(path, name=BEST)) == (6, 3)
    play(monkeypatch, [f"resume={path}", "resume_changed=true", "training.stop_when=[]"])
    assert trained_steps(path) == 8
    assert kept(path) == ["step_0007", "step_0008"]


@pytest.mark.stack
def test_a_condition_ends_a_run_with_a_last_validation_and_a_checkpoint(saves, monkeypatch):
    condition = 'training.stop_when=["scoring/invalid_rate < 0.5 for 3"]'
    sparse = ["training.validate_every=8", condition]
    path = play(monkeypatch, [f"saves={saves}", "name=collapsed", *ENDING_EARLY, *sparse])
    told = rows_of(path)
    assert [row["step"] for row in told] == [0, 1, 2, 3]
    assert [row["step"] for row in told if ACCURACY in row] == [0, 3]
    assert kept(path) == ["step_0003"]
    assert trained_steps(path) == 3
