"""Whole runs of scripted agents: batches ahead, the best step, and kills that change nothing."""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import scripted_agents
from builders import discussion, turn
from config_errors import only_error
from scripted_agents import KilledAgents, ScriptedAgents
from small_runs import QUICKSTART, record, write_records
from tables import cases

from comas import __main__ as command
from comas.config.errors import ConfigError
from comas.interaction.held import Asked, HeldDiscussion, Outcome, outcome_of
from comas.preflight.configuration import load_config
from comas.reproduction.results import read_result
from comas.run import bookkeeping
from comas.run.batches import Batches
from comas.run.pages.run_report import report_source
from comas.run.records import read_rows
from comas.run.status import BEST, trained_steps
from comas.types import Discussion, Request, RewardedDiscussion, Rewards
from comas.verification.solutions import Verdicts

ACCURACY = "validation/accuracy"


def config(*overrides: str) -> Any:
    return load_config(QUICKSTART, list(overrides))


def test_a_best_that_cannot_be_kept_is_refused_with_the_remedy():
    intervals = ("training.validate_every=5", "society.update_every=[1,2]")
    with pytest.raises(ConfigError, match=r"set training\.validate_every to a multiple of 2"):
        config(f"training.keep_best={ACCURACY}", *intervals)


def kept(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


ACCURACIES = [0.1, 0.2, 0.5, 0.7, 0.6, 0.7, 0.5]
"""By the number of updates: the best is after 3."""
SETTINGS = (
    "training.num_steps=6",
    "training.save_every=4",
    "training.keep_checkpoints=1",
    "training.validate_every=1",
    f"training.keep_best={ACCURACY}",
    "rollout.batch_size=2",
    "cluster.device=cpu",
)


def play(
    monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], *, killed_in: int | None = None
) -> Path:

    def validate(prepared: Any, agents: Any, *_: Any, keep: Any) -> dict[str, float]:
        value = ACCURACIES[agents.weights]
        return {ACCURACY: value, **{f"agent_{agent}/{ACCURACY}": value for agent in range(2)}}

    monkeypatch.setattr(bookkeeping, "validate_agents", validate)
    resumes = any(argument.startswith("resume=") for argument in arguments)
    config = load_config(None if resumes else QUICKSTART, arguments)
    return scripted_agents.play(monkeypatch, config, KilledAgents(killed_in))


@pytest.mark.stack
def test_gold_answers_are_on_record_and_reach_no_prompt_or_reward(saves, tmp_path, monkeypatch):
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
    """Return everything that a run computed, but for times, seals, logs and cards."""
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
@pytest.mark.parametrize(("killed_in", "staleness"), [(4, 0), (6, 1), (5, 2)])
def test_a_killed_run_ends_as_one_that_nobody_disturbed(saves, monkeypatch, killed_in, staleness):
    ahead = [f"training.max_staleness={staleness}", "algorithm.rollout_correction=ratio"]
    settings = [f"saves={saves}", *SETTINGS, *ahead]
    undisturbed = play(monkeypatch, [*settings, f"name=undisturbed-{staleness}"])
    name = f"name=killed-{killed_in}-{staleness}"
    path = play(monkeypatch, [*settings, name], killed_in=killed_in)
    stale = [row["rollout/staleness"] for row in read_rows(path / "metrics.jsonl")[1:]]
    assert stale == [min(step, staleness) for step in range(len(stale))]
    assert trained_steps(path) is None
    play(monkeypatch, [f"resume={path}"])
    assert left_by(path) == left_by(undisturbed)


@pytest.mark.stack
def test_a_finished_run_trains_nothing_more_and_gives_its_best_models(saves, monkeypatch, caplog):
    caplog.set_level("INFO")
    path = play(monkeypatch, [f"saves={saves}", "name=best", *SETTINGS])
    assert kept(path) == ["step_0003", "step_0006"]
    assert report_source(path).result.endswith(f" {ACCURACY} was best after step 3.")
    assert read_result(path, "best", seed=0, metrics=[ACCURACY]).after == {ACCURACY: ACCURACIES[6]}
    whole = left_by(path)
    again, done = "continuing after step 6 of 6", "nothing to train: this run has made all of its"
    for harm, said in (
        (lambda: shutil.rmtree(path / "models"), again),  # no step more is trained
        (lambda: None, done),
    ):
        harm()
        caplog.clear()
        play(monkeypatch, [f"resume={path}"])
        assert said in caplog.text
        assert left_by(path) == whole
    monkeypatch.setattr(command, "agents_of", lambda *_: KilledAgents())
    assert command.main(["--export-best", f"resume={path}"]) == 0
    assert (path / "best/agent_1/weights").read_text() == "3"
    assert "for 3 steps" in (path / "best/agent_1/README.md").read_text()
    assert (trained_steps(path), trained_steps(path, name=BEST)) == (6, 3)


@pytest.mark.stack
def test_a_best_metric_that_no_validation_gives_ends_the_run_at_its_start(saves, monkeypatch):
    asked = [*SETTINGS, "name=unknown", "training.keep_best=validation/accuracy/choice"]
    with pytest.raises(ValueError, match=f"names validation/accuracy/choice, .*give {ACCURACY}, "):
        play(monkeypatch, [f"saves={saves}", *asked])


def verdicts_of(discussions: Sequence[Discussion]) -> Callable[[], Verdicts]:
    return lambda: {(d.discussion_id, t.turn_id): "correct" for d in discussions for t in d.turns}


class Loop:
    """The driver's loop without its work; ``told`` lists its actions: "s2/1" samples batch 2 with
    the weights of step 1, "u1" is update 1."""

    def __init__(self, lead: int, *, checkpoint: tuple[int, Path] | None = None) -> None:
        self.told: list[str] = []
        self.served = 0 if checkpoint is None else checkpoint[0]
        self.batches = Batches(
            self.sample, verdicts_of, lead=lead, num_steps=5, checkpoint=checkpoint
        )

    def sample(self, step: int) -> tuple[Rewards, Callable[[], Verdicts]]:
        self.told.append(f"s{step}/{self.served}")
        return Rewards([], {"of": step}), dict

    def step(self, step: int) -> int:
        batch = self.batches.take(step)
        assert batch.rewards.metrics == {"of": step}
        self.told.append(f"u{step}")
        self.batches.sample_ahead(step)
        self.served = step
        return batch.staleness


@cases("lead, staleness, told")
def test_batches_are_sampled_beside_updates_and_none_is_staler_than_the_lead(lead, staleness, told):
    loop = Loop(lead)
    assert [loop.step(step) for step in range(1, 6)] == staleness
    assert loop.told == told.split()


@pytest.mark.parametrize("lead", [1, 2])
def test_what_a_checkpoint_held_is_trained_on_before_anything_is_sampled(tmp_path, lead):
    whole, first = Loop(lead), Loop(lead)
    expected = [whole.step(step) for step in range(1, 6)]
    found = [first.step(step) for step in (1, 2)]
    first.batches.save(tmp_path)
    second = Loop(lead, checkpoint=(2, tmp_path))
    assert found + [second.step(step) for step in (3, 4, 5)] == expected
    assert first.told + second.told == whole.told


def test_a_checkpoint_holds_how_a_program_held_a_discussion(tmp_path):
    asked = Asked([{"role": "user", "content": "?"}], None, ["python"])
    outcome = Outcome("r0.s0", rewards={"r0.s0": 1.0}, asked={"r0.s0": asked})
    held = HeldDiscussion(**vars(discussion(turn("r0.s0"), turn("r0.s1"))), outcome=outcome)
    rewards = Rewards([RewardedDiscussion(each, ()) for each in (held, discussion())])

    def batches(checkpoint: tuple[int, Path] | None = None) -> Batches:
        return Batches(
            lambda step: (rewards, dict), verdicts_of, lead=1, num_steps=2, checkpoint=checkpoint
        )

    begun = batches()
    begun.take(1)
    begun.sample_ahead(1)
    begun.save(tmp_path)
    found = batches((1, tmp_path)).take(2).rewards.discussions
    assert [outcome_of(item.discussion) for item in found] == [outcome, None]
    assert [each.turn_id for each in found[0].discussion.solutions()] == ["r0.s0"]


AHEAD_OF = ("training.max_staleness=1", "algorithm.rollout_correction=tis")


@cases(
    "settings, said",
    (["cluster.device=cuda", *AHEAD_OF], "set cluster.placement to disaggregated"),
    (["cluster.device=cpu", AHEAD_OF[0]], "set algorithm.rollout_correction to ratio, tis or"),
)
def test_what_staleness_cannot_have_is_refused_with_the_remedy(settings, said):
    assert said in only_error(*settings, file=QUICKSTART)
