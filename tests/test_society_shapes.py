"""Who shares a policy, and who learns how fast, how often, or never."""

import pytest
from scripted_agents import KilledAgents, play
from small_runs import QUICKSTART, tiny_settings
from tables import cases

from comas.config.schema import Config, Society, for_agent
from comas.engines.cluster.agents import Agents
from comas.engines.cluster.placement import gpus_in_all, plan_policy
from comas.policy_optimization.samples import Buffers
from comas.policy_optimization.update_stats import UpdateStats
from comas.preflight.configuration import load_config
from comas.preflight.sizes import derive_sizes
from comas.run.bookkeeping import is_due
from comas.run.metrics.step import update_metrics
from comas.run.records import read_rows
from comas.types import TrainingSample

FIVE = ("society.num_agents=5", "society.policy_of_agent=[0,0,0,1,2]")
"""Three agents share a policy, one has its own, and one is frozen by the tests."""


def society(*overrides: str) -> Config:
    models = "society.models=[quickstart/models/qwen2]"
    return load_config(QUICKSTART, [models, *overrides])


def said(name: str) -> TrainingSample:
    return TrainingSample(0, name, name, "r0.s0", 0, "solution", (1,), (2,), (-0.5,), 0.0)


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
    samples = [[said("q")] for _ in intervals]
    for num_steps in range(1, 14, 2):
        buffers = Buffers(intervals)
        num_taken = [0] * len(intervals)
        for step in range(1, num_steps + 1):
            buffers.add(samples)
            for policy, own in buffers.take_due(step, num_steps=num_steps).items():
                num_taken[policy] += len(own)
            if is_due(step, every=save_every, num_steps=num_steps):
                assert num_taken == [step if every else 0 for every in intervals]


@cases(
    "overrides, samples, of_an_update, of_the_run",
    # 2 agents: 24 discussions of 2 rounds with 2 solutions, evaluations and scorings each,
    # 288 turns a step; 5 agents: 24 x 2 x 5 x 3 = 720, 144 for each agent.
    (("society.policy_of_agent=[0,0]",), (288,), (1,), (10,)),
    (FIVE, (432, 144, 144), (1, 1, 1), (10, 10, 10)),
    # In 10 steps 3, 6, 9 and the last: 4 updates.
    ((*FIVE, "society.update_every=[1,3,0]"), (432, 144, 144), (1, 1, 0), (10, 4, 0)),
)
def test_sizes_are_those_of_each_policy(overrides, samples, of_an_update, of_the_run):
    saving = ("training.num_steps=10", "training.save_every=3")
    sizes = derive_sizes(society(*overrides, *saving), num_questions=2400)
    assert sizes.samples_per_policy == samples
    assert sizes.optimizer_steps_per_policy == of_an_update
    assert sizes.num_optimizer_steps == of_the_run


def test_the_share_without_advantage_counts_samples_and_not_their_tokens():
    # Of three samples the second has none; 1e-13 is the rounding of a mean.
    advantages = ((0.5, -0.5), (0.0, 1e-13, 0.0, -1e-13), (0.0, 0.1))
    metrics = update_metrics(
        {
            0: UpdateStats(learning_rate=1e-3, advantages=advantages),
            1: UpdateStats(learning_rate=1e-3),
        },
        policy_of_agent=[0, 1],
    )
    assert metrics["agent_0/policy/no_advantage_share"] == pytest.approx(1 / 3)
    assert metrics["agent_1/policy/no_advantage_share"] is None


def test_a_run_does_not_go_on_with_the_base_model_of_a_policy_that_was_trained(tmp_path):
    (tmp_path / "policy_1").mkdir()
    config = Config(society=Society(num_agents=2, update_every=[1, 0]))
    agents = Agents(config, models=["a", "b"], device="cpu")
    with pytest.raises(ValueError, match=r"policy 1 was trained, and society\.update_every=\[1, 0"):
        agents.load_checkpoint(tmp_path, step=2)


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
    run = play(monkeypatch, config, KilledAgents())
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
