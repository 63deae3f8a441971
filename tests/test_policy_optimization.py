"""Samples, advantages, losses and batches, computed by hand and against OpenRLHF."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from random import Random
from types import ModuleType, SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from comas.policy_optimization import ADVANTAGE_ESTIMATORS, logprobs
from comas.policy_optimization.advantages.grpo import grpo
from comas.policy_optimization.advantages.inputs import AdvantageInputs
from comas.policy_optimization.advantages.reinforce_pp import reinforce_pp, token_returns, whiten
from comas.policy_optimization.batching import (
    assemble,
    num_optimizer_steps,
    padded_rollout_logprobs,
    response_mask,
    sample_cost,
    split_into_micro_batches,
    split_into_steps,
)
from comas.policy_optimization.logprobs import token_logprobs
from comas.policy_optimization.losses import (
    StepTotals,
    approximate_kl,
    clipped_surrogate,
    kl_penalty,
)
from comas.policy_optimization.openrlhf_import import openrlhf_module
from comas.policy_optimization.samples import GROUP_KEYS, collect_samples, group_keys
from comas.policy_optimization.targets import Targets, compute_advantages
from comas.types import (
    Discussion,
    Generation,
    Question,
    RewardedDiscussion,
    TrainingSample,
    Turn,
)

CPU = torch.device("cpu")


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def mask_of(*lengths: int, width: int | None = None) -> torch.Tensor:
    return torch.arange(width or max(lengths)) < torch.tensor(lengths)[:, None]


def inputs(
    rewards: list[float],
    lengths: list[int],
    *,
    k1: torch.Tensor | None = None,
    groups: list[object] | None = None,
    discount: float = 1.0,
    kl_coef: float = 0.0,
) -> AdvantageInputs:
    mask = mask_of(*lengths)
    return AdvantageInputs(
        rewards=torch.tensor(rewards),
        mask=mask,
        k1=torch.zeros(mask.shape) if k1 is None else k1,
        groups=groups or [0] * len(rewards),  # type: ignore[arg-type]
        discount=discount,
        kl_coef=kl_coef,
    )


def sample(prompt: int = 2, response: int = 3, **fields: object) -> TrainingSample:
    values = {
        "agent_index": 0,
        "question_id": "q",
        "discussion_id": "d",
        "round_index": 0,
        "role": "solution",
        "prompt_token_ids": tuple(range(10, 10 + prompt)),
        "response_token_ids": tuple(range(20, 20 + response)),
        "rollout_logprobs": tuple(-0.5 - i for i in range(response)),
        "reward": 1.0,
    }
    return TrainingSample(**{**values, **fields})  # type: ignore[arg-type]


# ---- Samples ----


def turn(turn_id: str, agent_index: int, finish_reason: str = "stop") -> Turn:
    generation = Generation((1, 2), (3,), "text", (-0.5,), finish_reason, 0)  # type: ignore[arg-type]
    return Turn(turn_id, None, 0, "solution", agent_index, "prompt", generation)


def rewarded(discussion_id: str, turns: list[Turn], rewards: list[float | None]):
    discussion = Discussion(discussion_id, Question("q", "math", "?"), tuple(turns))
    return RewardedDiscussion(discussion, tuple(rewards))


def test_each_policy_gets_what_its_agents_said_in_order_of_discussion_and_turn():
    first = rewarded("a", [turn("s0", 2), turn("s1", 0), turn("s2", 1)], [0.1, 0.2, 0.3])
    second = rewarded("b", [turn("s0", 0)], [0.4])
    buffers = collect_samples([first, second], policy_of_agent=[0, 0, 1], mask_truncated=True)
    assert [[s.reward for s in buffer] for buffer in buffers] == [[0.2, 0.3, 0.4], [0.1]]
    assert [s.discussion_id for s in buffers[0]] == ["a", "a", "b"]


def test_a_sample_holds_exactly_the_tokens_that_were_sampled():
    generation = Generation((5, 8), (7, 9, 1), "71", (-0.1, -0.7, -0.2), "stop", 3)
    said = replace(turn("r1.s0", 1), generation=generation, round_index=1, role="evaluation")
    [_, [only]] = collect_samples(
        [rewarded("d", [said], [0.5])], policy_of_agent=[0, 1], mask_truncated=True
    )
    assert only == TrainingSample(
        1, "q", "d", 1, "evaluation", (5, 8), (7, 9, 1), (-0.1, -0.7, -0.2), 0.5
    )


def test_an_unrewarded_turn_is_left_out():
    item = rewarded("a", [turn("s0", 0), turn("s1", 0)], [None, 1.0])
    [buffer] = collect_samples([item], policy_of_agent=[0], mask_truncated=True)
    assert [s.reward for s in buffer] == [1.0]


@pytest.mark.parametrize(("mask_truncated", "kept"), [(True, [1.0]), (False, [0.0, 1.0])])
def test_a_truncated_response_is_left_out_when_masked(mask_truncated, kept):
    item = rewarded("a", [turn("s0", 0, "length"), turn("s1", 0)], [0.0, 1.0])
    [buffer] = collect_samples([item], policy_of_agent=[0], mask_truncated=mask_truncated)
    assert [s.reward for s in buffer] == kept


def test_groups_are_the_values_of_the_chosen_fields():
    assert group_keys([sample(role="scoring")], ["question_id", "role"]) == [("q", "scoring")]
    assert group_keys([sample()], GROUP_KEYS) == [(0, "q", "d", 0, "solution")]


# ---- REINFORCE++ ----


def test_reinforce_pp_whitens_over_all_response_tokens():
    # Returns [1, 1] and [0]: mean 2/3 over three tokens, variance
    # (2 (1/3)^2 + (2/3)^2) / 3 = 2/9; (1/3) / sqrt(2/9) = 1/sqrt(2), -(2/3) / sqrt(2/9) = -sqrt(2).
    advantages = reinforce_pp(inputs([1.0, 0.0], [2, 1]))
    expected = torch.tensor([[0.5**0.5, 0.5**0.5], [-(2**0.5), 0.0]])
    torch.testing.assert_close(advantages, expected)


def test_the_kl_penalty_accumulates_from_a_token_to_the_end():
    # beta k1 = [0.2, 0.1]: A_1 = 1 - 0.2 - 0.1 = 0.7, A_2 = 1 - 0.1 = 0.9 (eq. 9).
    returns = token_returns(inputs([1.0], [2], k1=torch.tensor([[2.0, 1.0]]), kl_coef=0.1))
    torch.testing.assert_close(returns, torch.tensor([[0.7, 0.9]], dtype=torch.float64))


def test_the_discount_applies_from_the_rewarded_last_token_backwards():
    # Token rewards [-0.2, -0.1 + 1]: A_2 = 0.9, A_1 = -0.2 + 0.5 * 0.9 = 0.25.
    k1 = torch.tensor([[2.0, 1.0, 7.0]])  # the third token is padding
    padded = inputs([1.0, 0.0], [2, 3], k1=torch.cat([k1, torch.zeros(1, 3)]), kl_coef=0.1)
    returns = token_returns(replace(padded, discount=0.5))
    torch.testing.assert_close(returns[0, :2], torch.tensor([0.25, 0.9], dtype=torch.float64))


@pytest.mark.parametrize("reward", [0.0, 0.1, 0.5, 1.0, -1.0])
def test_a_constant_reward_has_zero_advantage(reward):
    # 0.1 is not a float: the rounding of the mean must not be blown up by the whitening.
    lengths = [7, 3, 5, 1, 9, 30]
    advantages = reinforce_pp(inputs([reward] * 6, lengths))
    assert advantages.abs().max() < 1e-6


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), min_size=2, max_size=8),
    st.floats(0.1, 10),
    st.floats(-5, 5),
)
def test_whitened_rewards_do_not_depend_on_scale_and_offset(responses, scale, offset):
    rewards = [reward / 4 for reward, _ in responses]
    lengths = [length for _, length in responses]
    plain = reinforce_pp(inputs(rewards, lengths))
    moved = reinforce_pp(inputs([scale * reward + offset for reward in rewards], lengths))
    torch.testing.assert_close(plain, moved, rtol=1e-3, atol=1e-3)


def test_whitened_advantages_have_mean_zero_and_variance_one_over_tokens():
    values = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    mask = mask_of(7, 2, 4, 1, 5)
    white = whiten(values, mask)[mask]
    assert white.mean().abs() < 1e-6
    torch.testing.assert_close(white.square().mean(), torch.tensor(1.0))


@pytest.mark.parametrize("name", sorted(ADVANTAGE_ESTIMATORS))
def test_padding_changes_no_advantage(name):
    estimator = ADVANTAGE_ESTIMATORS[name].advantages
    tight = inputs([1.0, 0.0, 0.5], [2, 3, 1], k1=torch.ones(3, 3), kl_coef=0.1)
    garbage = torch.cat([tight.k1, torch.full((3, 4), 9.0)], dim=1)
    wide = replace(tight, mask=mask_of(2, 3, 1, width=7), k1=garbage)
    torch.testing.assert_close(estimator(wide)[:, :3], estimator(tight))
    assert estimator(wide)[:, 3:].abs().max() == 0


# ---- GRPO ----


def test_grpo_standardises_within_ragged_groups():
    # a: rewards 1, 0: mean 0.5, std sqrt(0.25 + 0.25) = 0.7071, so +-0.7071.
    # b: rewards 1, 0, 0.5: mean 0.5, std sqrt((0.25 + 0.25 + 0) / 2) = 0.5, so 1, -1, 0.
    groups = ["a", "b", "b", "a", "b"]
    advantages = grpo(inputs([1.0, 1.0, 0.0, 0.0, 0.5], [1, 2, 1, 1, 1], groups=groups))
    expected = torch.tensor(
        [[0.5**0.5, 0.0], [1.0, 1.0], [-1.0, 0.0], [-(0.5**0.5), 0.0], [0.0, 0.0]]
    )
    torch.testing.assert_close(advantages, expected)


def test_a_lone_response_has_zero_advantage():
    advantages = grpo(inputs([1.0, 0.0, 0.7], [1, 1, 1], groups=["a", "a", "b"]))
    assert advantages[2, 0] == 0


@pytest.mark.parametrize("reward", [0.1, 0.3, 1.0])
def test_a_group_of_equal_rewards_has_zero_advantage(reward):
    assert grpo(inputs([reward] * 7, [2] * 7)).abs().max() == 0


def test_grpo_does_not_depend_on_the_order_of_the_buffer():
    rewards, groups = [1.0, 0.0, 0.5, 0.25, 1.0], ["a", "b", "a", "b", "b"]
    order = [3, 0, 4, 2, 1]
    straight = grpo(inputs(rewards, [1] * 5, groups=groups))
    shuffled = grpo(inputs([rewards[i] for i in order], [1] * 5, groups=[groups[i] for i in order]))
    torch.testing.assert_close(straight[order], shuffled)


def test_advantages_use_the_configured_groups():
    samples = [
        sample(response=1, reward=1.0, role="solution"),
        sample(response=1, reward=0.0, role="solution"),
        sample(response=1, reward=0.3, role="scoring"),
    ]
    advantages = compute_advantages(
        samples,
        mask=response_mask(samples),
        k1=torch.zeros(3, 1),
        estimator=ADVANTAGE_ESTIMATORS["grpo"],
        group_by=["question_id", "role"],
        discount=1.0,
        kl_coef=0.0,
    )
    torch.testing.assert_close(advantages[:, 0], tensor(0.5**0.5, -(0.5**0.5), 0.0))


# ---- Parity with OpenRLHF's own advantages ----


def openrlhf_advantages(
    monkeypatch: pytest.MonkeyPatch, estimator: str, data: AdvantageInputs, copies: int
) -> torch.Tensor:
    """Run OpenRLHF's own code, without the packages' __init__ files: they need what has no
    CPU build (FlashAttention) or is not installed (its verifiers)."""
    openrlhf_module("utils")
    root = sys.modules["openrlhf"].__path__[0]
    for name in ("models", "utils", "trainer/ray"):
        package = ModuleType(f"openrlhf.{name.replace('/', '.')}")
        package.__path__ = [f"{root}/{name}"]
        monkeypatch.setitem(sys.modules, package.__name__, package)
    launcher = ModuleType("openrlhf.trainer.ray.launcher")
    launcher.RayActorGroup = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, launcher.__name__, launcher)
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    advantage = SimpleNamespace(estimator=estimator, gamma=data.discount, no_std_norm=False)
    maker = RemoteExperienceMaker.__new__(RemoteExperienceMaker)
    maker.args = SimpleNamespace(
        algo=SimpleNamespace(advantage=advantage),
        rollout=SimpleNamespace(n_samples_per_prompt=copies),
        reward=SimpleNamespace(
            clip_range=None, overlong_buffer_len=None, stop_properly_penalty_coef=None
        ),
    )
    maker.strategy = SimpleNamespace(args=maker.args)
    maker.advantage_estimator = estimator
    maker.kl_ctl = SimpleNamespace(value=data.kl_coef)
    experience = SimpleNamespace(
        index=list(range(len(data.rewards))),
        rewards=data.rewards.clone(),
        kl=data.k1,
        action_mask=data.mask,
        info={},
    )
    [done] = RemoteExperienceMaker.compute_advantages_and_returns(maker, [experience])
    return done.advantages * data.mask


@pytest.mark.parametrize(("discount", "kl_coef"), [(1.0, 0.0), (1.0, 0.2), (0.9, 0.2)])
def test_reinforce_pp_equals_openrlhf(monkeypatch, discount, kl_coef):
    k1 = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    data = inputs([1.0, 0.0, 0.5, -1.0], [6, 2, 4, 1], k1=k1, discount=discount, kl_coef=kl_coef)
    expected = openrlhf_advantages(monkeypatch, "reinforce", data, copies=1)
    torch.testing.assert_close(reinforce_pp(data), expected, rtol=1e-5, atol=1e-6)


def test_grpo_equals_openrlhf_on_groups_of_equal_size(monkeypatch):
    data = inputs([1.0, 0.0, 0.5, -1.0, 0.0, 0.0], [6, 2, 4, 1, 3, 3], groups=list("aaabbb"))
    expected = openrlhf_advantages(monkeypatch, "group_norm", data, copies=3)
    torch.testing.assert_close(grpo(data), expected, rtol=1e-5, atol=1e-6)


# ---- Losses ----


def totals(num_tokens: int, num_samples: int = 1, num_ranks: int = 1) -> StepTotals:
    return StepTotals(num_tokens, num_samples, num_ranks)


def surrogate(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    step: StepTotals,
    aggregation: str = "token_mean",
) -> tuple[torch.Tensor, torch.Tensor]:
    return clipped_surrogate(
        logprobs,
        old_logprobs=old,
        advantages=advantages,
        mask=mask,
        clip_epsilon=0.2,
        aggregation=aggregation,
        totals=step,
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "num_clipped"),
    [
        (1.0, 2.0, -2.0, 0),
        (1.5, 1.0, -1.2, 1),  # gain capped at 1 + 0.2
        (0.5, 1.0, -0.5, 0),  # a loss is not
        (0.5, -1.0, 0.8, 1),  # capped at 1 - 0.2
        (1.5, -1.0, 1.5, 0),
    ],
)
def test_the_surrogate_clips_gains_only(ratio, advantage, loss, num_clipped):
    found, clipped = surrogate(
        tensor([math.log(ratio)]), tensor([0.0]), tensor([advantage]), mask_of(1), totals(1)
    )
    assert found.item() == pytest.approx(loss)
    assert clipped.item() == num_clipped


def test_token_mean_weighs_tokens_and_sequence_mean_responses():
    # Losses 1, 1, 1 of one response and 5 of the other: (1 + 1 + 1 + 5) / 4 = 2, (1 + 5) / 2 = 3.
    advantages = -torch.tensor([[1.0, 1.0, 1.0], [5.0, 0.0, 0.0]])
    zeros, mask = torch.zeros(2, 3), mask_of(3, 1)
    loss, _ = surrogate(zeros, zeros, advantages, mask, totals(4, 2))
    assert loss.item() == pytest.approx(2.0)
    loss, _ = surrogate(zeros, zeros, advantages, mask, totals(4, 2), "sequence_mean")
    assert loss.item() == pytest.approx(3.0)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
@pytest.mark.parametrize("cuts", [[[0, 1, 2, 3]], [[3], [0, 2], [1]], [[0], [1], [2], [3], []]])
def test_loss_and_gradient_do_not_depend_on_micro_batches(aggregation, cuts):
    generator = torch.Generator().manual_seed(0)
    logprobs, old, advantages = torch.randn(3, 4, 5, generator=generator).unbind()
    logprobs.requires_grad_()
    mask = mask_of(5, 2, 3, 1)
    targets = Targets(mask, advantages, old, None, None)
    step = totals(11, 4)
    whole, whole_clipped = surrogate(logprobs, old, advantages, mask, step, aggregation)
    [whole_gradient] = torch.autograd.grad(whole, logprobs)
    loss, clipped = torch.tensor(0.0), 0.0
    for cut in cuts:
        width = max((int(mask[i].sum()) for i in cut), default=1)
        rows = targets.rows(cut, width)
        part, num_clipped = surrogate(
            logprobs[cut, :width], rows.old_logprobs, rows.advantages, rows.mask, step, aggregation
        )
        loss, clipped = loss + part, clipped + num_clipped.item()
    [gradient] = torch.autograd.grad(loss, logprobs)
    torch.testing.assert_close(loss, whole)
    torch.testing.assert_close(gradient, whole_gradient)
    assert clipped == pytest.approx(whole_clipped.item())


def test_an_empty_micro_batch_has_no_loss_and_no_clipped_tokens():
    zeros = torch.zeros(1, 1, requires_grad=True)
    loss, clipped = surrogate(
        zeros, zeros.detach(), torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.bool), totals(7)
    )
    loss.backward()
    assert (loss.item(), clipped.item(), zeros.grad.item()) == (0.0, 0.0, 0.0)


def test_the_loss_makes_up_for_the_mean_over_ranks():
    zeros = torch.zeros(1, 2)
    one, _ = surrogate(zeros, zeros, torch.ones(1, 2), mask_of(2), totals(4, 2, 1))
    two, _ = surrogate(zeros, zeros, torch.ones(1, 2), mask_of(2), totals(4, 2, 2))
    assert (one.item(), two.item()) == (-0.5, -1.0)  # 2 of 4 tokens; twice that, then halved


def test_kl_estimates_of_a_token():
    # log ratio -1 - (-2) = 1: k1 = 1, k2 = 1/2, k3 = exp(-1) - 1 + 1 = 0.3679.
    found = [
        approximate_kl(tensor(-1.0), tensor(-2.0), estimator=name).item()
        for name in ("k1", "k2", "k3")
    ]
    assert found == pytest.approx([1.0, 0.5, math.exp(-1)])


def test_the_kl_penalty_is_averaged_like_the_loss_and_pulls_to_the_reference():
    logprobs = torch.tensor([[-1.0, -3.0]], requires_grad=True)
    penalty = kl_penalty(
        logprobs,
        reference_logprobs=torch.tensor([[-2.0, -9.0]]),
        mask=torch.tensor([[True, False]]),
        estimator="k3",
        aggregation="token_mean",
        totals=totals(2, 1),
    )
    assert penalty.item() == pytest.approx(math.exp(-1) / 2)
    penalty.backward()
    # d k3 / d lp = 1 - exp(ref - lp) = 1 - exp(-1) > 0: descending lowers lp towards ref.
    torch.testing.assert_close(logprobs.grad, torch.tensor([[(1 - math.exp(-1)) / 2, 0.0]]))


def test_openrlhf_is_imported_without_its_package_and_without_flash_attention():
    assert openrlhf_module("loss") is openrlhf_module("loss")
    assert "openrlhf.models" not in sys.modules
    assert "flash_attn" not in sys.modules


# ---- Log-probs ----


@pytest.mark.parametrize(("temperature", "probability"), [(1.0, 0.9), (2.0, 0.75)])
def test_token_logprobs_are_those_at_the_temperature(temperature, probability):
    # Logits 0 and 2 ln 3 are odds of 9 at temperature 1 and of 3 at temperature 2.
    weight = torch.tensor([[0.0], [2 * math.log(3)]])
    found = token_logprobs(torch.ones(1, 1), weight, torch.tensor([1]), temperature=temperature)
    assert found.exp().item() == pytest.approx(probability)


@pytest.mark.parametrize("num_tokens", [0, 1, 7, 8, 9, 20])
def test_chunks_of_logits_give_the_logprobs_and_gradients_of_all_at_once(monkeypatch, num_tokens):
    monkeypatch.setattr(logprobs, "CHUNK_SIZE", 8)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(num_tokens, 5, generator=generator).requires_grad_()
    weight = torch.randn(11, 5, generator=generator).requires_grad_()
    token_ids = torch.randint(11, (num_tokens,), generator=generator)
    upstream = torch.randn(num_tokens, generator=generator)
    expected = (hidden @ weight.T / 0.7).log_softmax(-1)[range(num_tokens), token_ids]
    found = token_logprobs(hidden, weight, token_ids, temperature=0.7)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    gradients = torch.autograd.grad(found, (hidden, weight), upstream)
    for one, other in zip(
        gradients, torch.autograd.grad(expected, (hidden, weight), upstream), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_bfloat16_logits_give_float32_logprobs():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(4, 6, generator=generator).bfloat16()
    weight = torch.randn(9, 6, generator=generator).bfloat16().requires_grad_()
    token_ids = torch.tensor([0, 3, 8, 5])
    expected = (hidden @ weight.T).float().log_softmax(-1)[range(4), token_ids]
    found = token_logprobs(hidden, weight, token_ids, temperature=1.0)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found.sum(), weight)
    assert gradient.dtype == torch.bfloat16


# ---- Batches ----


@pytest.mark.parametrize(
    ("num_samples", "train_batch_size", "steps"),
    [(150, 64, 2), (165, 64, 3), (64, 64, 1), (10, 64, 1), (1, 1, 1), (150, None, 1), (0, 64, 0)],
)
def test_optimiser_steps_have_about_the_train_batch_size(num_samples, train_batch_size, steps):
    assert num_optimizer_steps(num_samples, train_batch_size) == steps


@given(st.integers(0, 200), st.one_of(st.none(), st.integers(1, 70)))
def test_steps_hold_every_sample_once_and_differ_by_one_at_most(num_samples, size):
    steps = split_into_steps(num_samples, train_batch_size=size, rng=Random(0))
    assert sorted(i for step in steps for i in step) == list(range(num_samples))
    lengths = {len(step) for step in steps}
    assert not lengths or (max(lengths) - min(lengths) <= 1 and min(lengths) > 0)


def test_the_shuffle_is_decided_by_its_generator():
    def split(seed: str) -> list[list[int]]:
        return split_into_steps(20, train_batch_size=5, rng=Random(seed))

    assert split("0/1/0") == split("0/1/0") != split("0/2/0")


def micro_batches(lengths: list[int], limit: int, *, ranks: int, by_tokens: bool = True):
    return split_into_micro_batches(
        lengths,
        micro_batch_size=None if by_tokens else limit,
        micro_batch_tokens=limit if by_tokens else None,
        num_ranks=ranks,
    )


def test_micro_batches_are_of_like_cost_on_all_ranks():
    # Longest first, to the micro batch with the least so far: 9 | 8 | 4 | 3 + 2.
    shares = micro_batches([9, 2, 8, 3, 4], 2, ranks=2, by_tokens=False)
    assert shares == [[[0], [4]], [[2], [3, 1]]]


def test_a_token_budget_holds_and_a_longer_sample_stands_alone():
    # Budget 12: 20 alone, and in 2 more the other 20 tokens: 5 + 4 + 2 and 6 + 3.
    assert micro_batches([5, 20, 2, 6, 3, 4], 12, ranks=1) == [[[1], [0, 5, 2], [3, 4]]]


def test_as_few_micro_batches_are_made_as_hold_the_samples():
    # 18 tokens are two times 9, but of 5 and 5 no two fit into 9.
    assert [len(share) for share in micro_batches([5, 5, 5, 3], 9, ranks=1)] == [3]


def test_few_samples_are_spread_over_the_ranks():
    shares = micro_batches([3, 3, 3, 3], 8, ranks=2, by_tokens=False)
    assert shares == [[[0, 2]], [[1, 3]]]
    assert micro_batches([3], 8, ranks=2) == [[[0]], [[]]]


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=40),
    st.integers(1, 60),
    st.integers(1, 4),
    st.booleans(),
)
def test_ranks_share_all_samples_in_equally_many_micro_batches(lengths, limit, ranks, by_tokens):
    shares = micro_batches(lengths, limit, ranks=ranks, by_tokens=by_tokens)
    batches = [batch for share in shares for batch in share]
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert len({len(share) for share in shares}) == 1
    for batch in batches:
        size = sum(lengths[i] for i in batch) if by_tokens else len(batch)
        assert size <= limit or len(batch) == 1
    assert len(shares[0]) <= -(-len(lengths) // ranks)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60), st.integers(1, 8))
def test_without_a_limit_ranks_differ_by_one_sample_at_most(lengths, ranks):
    [*costs] = (
        sum(sample_cost(lengths[i]) for batch in share for i in batch)
        for share in micro_batches(lengths, 10**9, ranks=ranks)
    )
    assert max(costs) - min(costs) <= sample_cost(max(lengths)) * (1 + 1e-9)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("by_tokens", [True, False])
def test_ranks_of_a_real_buffer_wait_for_each_other_hardly_at_all(ranks, by_tokens):
    rng = Random(0)
    lengths = [round(min(8192, rng.lognormvariate(6.5, 0.7))) for _ in range(400)]
    shares = micro_batches(lengths, 8192 if by_tokens else 4, ranks=ranks, by_tokens=by_tokens)
    costs = [[sum(sample_cost(lengths[i]) for i in batch) for batch in share] for share in shares]
    ideal = sum(map(sample_cost, lengths)) / ranks
    assert max(map(sum, costs)) < 1.01 * ideal
    # Where the ranks wait for each other after every micro batch, as under ZeRO-3.
    assert sum(map(max, zip(*costs, strict=True))) < 1.03 * ideal


def test_samples_lie_one_after_another_in_a_micro_batch():
    long = sample(prompt_token_ids=(5, 8), response_token_ids=(7, 9, 1))
    short = sample(prompt_token_ids=(5,), response_token_ids=(3,))
    batch = assemble([long, short], device=CPU)
    assert batch.input_ids.tolist() == [[5, 8, 7, 9, 1, 5, 3]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4, 0, 1]]
    assert (batch.boundaries.tolist(), batch.longest) == ([0, 5, 7], 5)
    assert batch.predicting.tolist() == [1, 2, 3, 5]
    assert batch.response_ids.tolist() == [7, 9, 1, 3]
    assert batch.mask.int().tolist() == [[1, 1, 1], [1, 0, 0]]


def test_an_empty_micro_batch_predicts_nothing():
    batch = assemble([], device=CPU)
    assert batch.input_ids.shape == batch.position_ids.shape == (1, 1)
    assert (batch.boundaries.tolist(), batch.longest) == ([0, 1], 1)
    assert not len(batch.predicting) and not len(batch.response_ids)
    assert not batch.mask.any()


def test_rollout_logprobs_stand_where_the_mask_is_true():
    samples = [sample(response=1), sample(response=3)]
    assert padded_rollout_logprobs(samples).tolist() == [[-0.5, 0.0, 0.0], [-0.5, -1.5, -2.5]]
    assert response_mask(samples).int().tolist() == [[1, 0, 0], [1, 1, 1]]
