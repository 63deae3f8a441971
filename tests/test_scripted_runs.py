"""Whole runs of scripted agents: batches ahead, who is trained when, the best step, and kills."""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import scripted_agents
from builders import discussion, sample, turn
from config_errors import only_error
from scripted_agents import ScriptedAgents
from small_runs import QUICKSTART, record, steps_in, tiny_settings, untimed, write_records
from tables import cases

from comas import __main__ as command
from comas.config.schema import Config, Society, for_agent
from comas.engines.cluster.agents import Agents
from comas.engines.cluster.placement import gpus_in_all, plan_policy
from comas.interaction.held import Asked, HeldDiscussion, Outcome, outcome_of
from comas.policy_optimization.samples import Buffers
from comas.policy_optimization.update_stats import UpdateStats
from comas.preflight.configuration import load_config
from comas.preflight.sizes import derive_sizes
from comas.reproduction.results import read_result
from comas.run import bookkeeping
from comas.run.batches import Batches
from comas.run.bookkeeping import is_due
from comas.run.metrics.step import update_metrics
from comas.run.pages.run_report import report_source
from comas.run.records import read_rows
from comas.run.status import BEST, trained_steps
from comas.types import Discussion, Request, RewardedDiscussion, Rewards
from comas.verification.solutions import Verdicts

ACCURACY = "validation/accuracy"


ACCURACIES = [0.1, 0.2, 0.5, 0.7, 0.6, 0.7, 0.5]
"""By the number of updates: the best is after 3."""
SETTINGS = (
    *("training.num_steps=6", "training.save_every=4", "training.keep_checkpoints=1"),
    *("training.validate_every=1", f"training.keep_best={ACCURACY}"),
    *("rollout.batch_size=2", "cluster.device=cpu"),
)


def play_validated(monkeypatch, arguments: Sequence[str], *killed_in: int) -> Path:
    def validate(prepared: Any, agents: Any, *_: Any, **kept: Any) -> dict[str, float]:
        value = ACCURACIES[agents.weights]
        return {ACCURACY: value, **{f"agent_{agent}/{ACCURACY}": value for agent in range(2)}}

    monkeypatch.setattr(bookkeeping, "validate_agents", validate)
    resumes = any(argument.startswith("resume=") for argument in arguments)
    config = load_config(None if resumes else QUICKSTART, arguments)
    return scripted_agents.play(monkeypatch, config, ScriptedAgents([*killed_in]))


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
        named = (f"saves={saves}", f"name={gold}", f"data.train={questions}")
        files = sorted((play_validated(monkeypatch, [*named, *sizes]) / "discussions").iterdir())
        records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        kept = {of["question_id"]: of.pop("gold") for of in records}
        assert kept == {f"gsm8k-{i}": f"{gold}{i}" for i in range(4)}
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
    return {"rows": untimed(run), **files}


@pytest.mark.stack
@pytest.mark.parametrize(("killed_in", "staleness"), [(4, 0), (6, 1), (5, 2)])
def test_a_killed_run_ends_as_one_that_nobody_disturbed(saves, monkeypatch, killed_in, staleness):
    ahead = [f"training.max_staleness={staleness}", "algorithm.rollout_correction=ratio"]
    settings = [f"saves={saves}", *SETTINGS, *ahead]
    undisturbed = play_validated(monkeypatch, [*settings, f"name=undisturbed-{staleness}"])
    name = f"name=killed-{killed_in}-{staleness}"
    path = play_validated(monkeypatch, [*settings, name], killed_in)
    stale = [row["rollout/staleness"] for row in read_rows(path / "metrics.jsonl")[1:]]
    assert stale == [min(step, staleness) for step in range(len(stale))]
    assert trained_steps(path) is None
    play_validated(monkeypatch, [f"resume={path}"])
    assert left_by(path) == left_by(undisturbed)


@pytest.mark.stack
def test_a_finished_run_trains_nothing_more_and_gives_its_best_models(saves, monkeypatch, caplog):
    caplog.set_level("INFO")
    path = play_validated(monkeypatch, [f"saves={saves}", "name=best", *SETTINGS])
    assert steps_in(path / "checkpoints") == [3, 6]
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
        play_validated(monkeypatch, [f"resume={path}"])
        assert said in caplog.text
        assert left_by(path) == whole
    monkeypatch.setattr(command, "agents_of", lambda *_: ScriptedAgents())
    (path / "ended").write_text("interrupted")
    assert command.main(["--export-best", f"resume={path}"]) == 0
    assert (path / "ended").read_text() == "interrupted"  # an export is no resume
    assert (path / "best/agent_1/weights").read_text() == "3"
    assert "for 3 steps" in (path / "best/agent_1/README.md").read_text()
    assert (trained_steps(path), trained_steps(path, name=BEST)) == (6, 3)


@pytest.mark.stack
def test_a_best_metric_that_no_validation_gives_ends_the_run_at_its_start(saves, monkeypatch):
    asked = [*SETTINGS, "name=unknown", "training.keep_best=validation/accuracy/choice"]
    with pytest.raises(ValueError, match=f"=validation/accuracy/choice is not .*give {ACCURACY}, "):
        play_validated(monkeypatch, [f"saves={saves}", *asked])


def verdicts_of(discussions: Sequence[Discussion]) -> Callable[[], Verdicts]:
    return lambda: {(d.discussion_id, t.turn_id): "correct" for d in discussions for t in d.turns}


class Loop:
    """The driver's loop without its work; ``told`` lists its actions: "s2/1" samples batch 2 with
    the weights of step 1, "u1" is update 1."""

    def __init__(self, lead: int) -> None:
        self.told: list[str] = []
        self.served = 0
        self.batches = Batches(self.sample, verdicts_of, lead=lead, num_steps=5)

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


def test_a_checkpoint_holds_how_a_program_held_a_discussion(tmp_path):
    asked = Asked([{"role": "user", "content": "?"}], None, ["python"])
    outcome = Outcome("r0.s0", rewards={"r0.s0": 1.0}, asked={"r0.s0": asked})
    held = HeldDiscussion(**vars(discussion(turn("r0.s0"), turn("r0.s1"))), outcome=outcome)
    rewards = Rewards([RewardedDiscussion(each, ()) for each in (held, discussion())])
    batches = partial(Batches, verify=verdicts_of, lead=1, num_steps=2)
    begun = batches(lambda step: (rewards, dict))
    begun.take(1)
    begun.sample_ahead(1)
    begun.save(tmp_path)
    never = Mock(side_effect=AssertionError("sampled again"))
    found = batches(never, checkpoint=(1, tmp_path)).take(2).rewards.discussions
    assert [outcome_of(item.discussion) for item in found] == [outcome, None]
    assert [each.turn_id for each in found[0].discussion.solutions()] == ["r0.s0"]
    other = Rewards([])
    changed = batches(lambda step: (other, dict), checkpoint=(1, tmp_path), made_with="other")
    assert changed.take(2).rewards is other


AHEAD = "training.max_staleness=1"
CORRECTED = "algorithm.rollout_correction=tis"
KEPT = (f"training.keep_best={ACCURACY}", "training.validate_every=5")


@cases(
    "settings, said",
    (["cluster.device=cuda", AHEAD, CORRECTED], "set cluster.placement to disaggregated"),
    (["cluster.device=cpu", AHEAD], "set algorithm.rollout_correction to ratio, tis, icepop or"),
    ([*KEPT, "society.update_every=[1,2]"], "set training.validate_every to a multiple of 2"),
)
def test_staleness_or_a_best_that_cannot_be_had_is_refused_with_the_remedy(settings, said):
    assert said in only_error(*settings, file=QUICKSTART)


FIVE = ("society.num_agents=5", "society.policy_of_agent=[0,0,0,1,2]")
"""Three agents share a policy, one has its own, and one is frozen by the tests."""


def society(*overrides: str) -> Config:
    return load_config(QUICKSTART, ["society.models=[quickstart/models/qwen2]", *overrides])


def test_policies_have_entries_of_their_own_or_one_that_serves_all():
    config = society(*FIVE, "society.learning_rates=[0.5]", "society.update_every=[2]")
    assert config.models == ["quickstart/models/qwen2"] * 3
    assert config.learning_rates == [0.5] * 3
    assert config.update_every == [2] * 3
    assert config.trained_policies == [0, 1, 2]
    config = society(*FIVE, "society.learning_rates=[1e-3,0.2,0.3]", "society.update_every=[1,2,0]")
    assert config.learning_rates == [1e-3, 0.2, 0.3]
    assert config.trained_policies == [0, 1]
    assert society(*FIVE, "optimization.learning_rate=0.25").learning_rates == [0.25] * 3


def test_sampling_values_are_for_all_agents_or_for_each():
    rollout = society(*FIVE, "rollout.temperature=[1,0.7,0.7,1,0.5]").rollout
    assert [for_agent(rollout.temperature, i) for i in range(5)] == [1.0, 0.7, 0.7, 1.0, 0.5]
    assert for_agent(rollout.max_response_tokens, 3) == rollout.longest_response
    assert society(*FIVE, "rollout.temperature=2").rollout.temperature == 2.0
    rollout = society(*FIVE, "rollout.max_response_tokens=[64]").rollout
    assert (for_agent(rollout.max_response_tokens, 4), rollout.longest_response) == (64, 64)
    with pytest.raises(ValueError, match="must have one entry, or 5 for 5 agents, has 2"):
        society(*FIVE, "rollout.temperature=[1,2]")


@cases("intervals, save_every", ((1, 2, 0), 2), ((2, 3), 6), ((4, 1), 4))
def test_after_a_step_with_a_checkpoint_no_buffer_holds_anything(intervals, save_every):
    for num_steps in range(1, 14, 2):
        buffers = Buffers(intervals)
        num_taken = [0] * len(intervals)
        for step in range(1, num_steps + 1):
            buffers.add([[sample()] for _ in intervals])
            for policy, own in buffers.take_due(step, num_steps=num_steps).items():
                num_taken[policy] += len(own)
            if is_due(step, every=save_every, num_steps=num_steps):
                assert num_taken == [step if every else 0 for every in intervals]


@cases("overrides, samples, of_an_update, of_the_run")
def test_sizes_are_those_of_each_policy(overrides, samples, of_an_update, of_the_run):
    saving = ("training.num_steps=10", "training.save_every=3")
    sizes = derive_sizes(society(*overrides, *saving), num_questions=2400)
    assert [*sizes.samples_per_policy] == samples
    assert [*sizes.optimizer_steps_per_policy] == of_an_update
    assert [*sizes.num_optimizer_steps] == of_the_run


def test_the_share_without_advantage_counts_samples_and_not_their_tokens():
    # Of three samples the second has none; 1e-13 is the rounding of a mean.
    advantages = ((0.5, -0.5), (0.0, 1e-13, 0.0, -1e-13), (0.0, 0.1))
    stats = [UpdateStats(learning_rate=1e-3, advantages=of) for of in (advantages, ())]
    metrics = update_metrics(dict(enumerate(stats)), policy_of_agent=[0, 1])
    assert metrics["agent_0/policy/no_advantage_share"] == pytest.approx(1 / 3)
    assert metrics["agent_1/policy/no_advantage_share"] is None


def test_a_run_does_not_go_on_with_the_base_model_of_a_policy_that_was_trained(tmp_path):
    (tmp_path / "policy_1").mkdir()
    config = Config(society=Society(num_agents=2, update_every=[1, 0]))
    with pytest.raises(ValueError, match=r"policy 1 was trained, and society\.update_every=\[1, 0"):
        Agents(config, models=["a", "b"], device="cpu").load_checkpoint(tmp_path, step=2)


@pytest.mark.stack
def test_a_mixed_society_trains_whom_it_should_when_it_should(tmp_path, monkeypatch):
    """Agents 0 and 1 share a policy, agent 2 is updated every 2 steps, agent 3 is frozen."""
    settings = (
        *("society.num_agents=4", "society.policy_of_agent=[0,0,1,2]"),
        *("society.update_every=[1,2,0]", "interaction.num_rounds=1"),
        *("rollout.max_prompt_tokens=4000", "rollout.max_response_tokens=16"),
        *("training.num_steps=3", "training.save_every=2", "validation.num_questions=1"),
    )
    config = load_config(QUICKSTART, tiny_settings(tmp_path, *settings))
    run = scripted_agents.play(monkeypatch, config, ScriptedAgents())
    # 2 discussions of 4 solutions, evaluations and scorings: 6 turns per agent and step. The last
    # step updates every trained policy.
    trained_on = [
        [row.get(f"agent_{agent}/policy/num_samples") for agent in range(4)]
        for row in read_rows(run / "metrics.jsonl")[1:]
    ]
    assert trained_on == [[12, 12, None, None], [12, 12, 2 * 6, None], [12, 12, 6, None]]


def test_adapters_of_one_base_are_a_family_and_whole_models_are_alone():
    mixed = (
        "society.models=[quickstart/models/qwen2,quickstart/models/llama,quickstart/models/qwen2]",
        "society.num_agents=3",
        "society.update_every=[1,0,2]",
        "training.save_every=10",
    )
    assert society(*mixed).families == [(0,), (1,), (2,)]
    assert society(*mixed).adapter_policies == []
    adapted = society(*mixed, "policy.lora.rank=8")
    assert adapted.families == [(0, 2), (1,)]
    assert adapted.trained_families == [(0, 2)]
    assert adapted.adapter_policies == [0, 2]
    settings = ("society.num_agents=4", "policy.lora.rank=8", "cluster.device=cuda")
    config = society(*settings, "cluster.policies_per_gpu=1")
    assert gpus_in_all(plan_policy(config, device="cuda"), len(config.families)) == 1
