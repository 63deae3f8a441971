"""The method in one file against the whole implementation: the same numbers from the same turns."""

import sys
from random import Random

import pytest
import torch
from programs import run_to_end

from comas import minimal, types
from comas.config.schema import Interaction, ReinforcePP
from comas.interaction.schedules import draw_speakers
from comas.policy_optimization.advantages import AdvantageInputs, reinforce_pp
from comas.policy_optimization.batching import StepTotals, response_mask, rollout_logprobs
from comas.policy_optimization.losses import Targets, policy_loss
from comas.policy_optimization.samples import collect_samples
from comas.reward_formulation.interaction_reward import interaction_reward


@pytest.fixture(scope="module")
def policies() -> list[minimal.Policy]:
    torch.manual_seed(0)
    return [minimal.Policy(), minimal.Policy()]


@pytest.fixture(scope="module")
def discussions(policies) -> list[minimal.Discussion]:
    """Discussions of untrained models, half of whose scorings are given a score."""
    held = minimal.discuss([(1, 2), (3, 4)] * 6, policies, step=1)
    for number, discussion in enumerate(held):
        scoring = discussion.turns[3 * (number % 2) + 2]
        scoring.response, scoring.logprobs = [minimal.SCORES[number % 3], minimal.END], [-1.0, -0.5]
        minimal.reward(discussion)
    return held


def test_both_give_the_same_rewards(discussions):
    [*rewarded] = interaction_reward([in_types(one) for one in discussions]).discussions
    expected = [turn.reward for one in discussions for turn in one.turns]
    assert [reward for item in rewarded for reward in item.rewards] == expected
    assert {-1.0, 0.0, 0.5, 1.0} == set(expected)


def test_both_draw_the_same_speakers():
    drawn = minimal.draw_speakers(Random("0/1/7"), num_agents=4, num_rounds=8)
    others = draw_speakers(Random("0/1/7"), num_agents=4, rules=Interaction(num_rounds=8))
    assert drawn == [[solver, *critics] for solver, [critics] in others]


def test_both_compute_the_same_advantages_loss_and_gradient(discussions, policies):
    policy, reference = policies
    own = buffer_of(discussions, agent_index=0)
    rewarded = interaction_reward([in_types(one) for one in discussions]).discussions
    samples, _ = collect_samples(rewarded, policy_of_agent=[0, 1], mask_truncated=True)
    mask = response_mask(samples)
    assert torch.equal(mask, minimal.response_mask(own))
    logprobs = minimal.response_logprobs(policy, own)
    log_ratios = (logprobs - minimal.response_logprobs(reference, own)).detach()
    rewards = torch.tensor([sample.reward for sample in samples])

    advantages = minimal.advantages(rewards, log_ratios, mask)
    whole = reinforce_pp(AdvantageInputs(rewards, mask, log_ratios * mask, (), kl_coef=0.05))
    torch.testing.assert_close(advantages, whole, rtol=0, atol=1e-6)

    # A policy that has moved since it spoke: some of its ratios are clipped.
    old = rollout_logprobs(samples) + 0.5 * torch.sin(torch.arange(mask.shape[1]))
    losses = (
        minimal.clipped_surrogate(logprobs, old, advantages, mask),
        policy_loss(
            logprobs,
            targets=Targets(mask, whole, old, None, None, rollout_logprobs(samples)),
            totals=StepTotals(int(mask.sum()), len(samples), 4, num_ranks=1),
            algorithm=ReinforcePP(clip_epsilon=0.2),
        ).loss,
    )
    torch.testing.assert_close(*losses, rtol=0, atol=1e-6)
    gradients = (torch.autograd.grad(loss, logprobs, retain_graph=True)[0] for loss in losses)
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)


def test_what_was_sampled_has_the_log_probs_of_the_policy(discussions, policies):
    own = [t for t in buffer_of(discussions, agent_index=1) if t.role != "scoring"]
    mask = minimal.response_mask(own)
    difference = minimal.response_logprobs(policies[1], own) - minimal.rollout_logprobs(own)
    assert difference[mask].abs().max() < 1e-5


@pytest.mark.slow
@pytest.mark.stack
def test_the_society_unlearns_its_habit():
    result = run_to_end(sys.executable, "-m", "comas.minimal", check=True)
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith("step")]
    first, last = (float(line[4]) for line in (lines[0], lines[-1]))
    assert first < 0.5 < 0.8 < last


def as_ids(words: list[str]) -> tuple[int, ...]:
    return tuple(minimal.TOKEN_IDS[word] for word in words)


def buffer_of(discussions: list[minimal.Discussion], agent_index: int) -> list[minimal.Turn]:
    said = [turn for discussion in discussions for turn in discussion.turns]
    return [t for t in said if t.agent_index == agent_index and not t.is_truncated]


def in_types(discussion: minimal.Discussion) -> types.Discussion:
    """The same discussion in the nouns of the whole implementation."""
    turns: list[types.Turn] = []
    for number, turn in enumerate(discussion.turns):
        round_index, place = divmod(number, 3)
        turn_id = f"r{round_index}.s0" + ("", ".e0", ".e0.t0")[place]
        parent_id = turns[-1].turn_id if place else None
        said, ended = turn.response, "length" if turn.is_truncated else "stop"
        tokens = (as_ids(turn.prompt), as_ids(said), " ".join(said), tuple(turn.logprobs))
        generation = types.Generation(*tokens, ended, policy_version=1)
        agent = turn.agent_index
        turns.append(types.Turn(turn_id, parent_id, round_index, turn.role, agent, "", generation))
    question = types.Question("sum", "math", "What is {} + {}?".format(*discussion.question))
    return types.Discussion("step1/sum/copy0", question, tuple(turns))
