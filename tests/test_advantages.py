"""Advantages, computed by hand and against OpenRLHF."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import builders
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from comas.config.schema import Optimization
from comas.policy_optimization.advantages import (
    ADVANTAGE_ESTIMATORS,
    AdvantageEstimator,
    AdvantageInputs,
    compute_advantages,
    reinforce_pp,
    token_returns,
)
from comas.policy_optimization.batching import response_mask
from comas.policy_optimization.group_advantages import (
    at_grpo,
    dr_grpo,
    dr_mas,
    grpo,
    rae,
    reinforce_pp_baseline,
    rloo,
)
from comas.policy_optimization.openrlhf_import import openrlhf_module
from comas.policy_optimization.samples import GROUP_KEYS
from comas.preflight.groups import needs_others
from comas.types import TrainingSample


def mask_of(*lengths: int, width: int | None = None) -> torch.Tensor:
    return torch.arange(width or max(lengths)) < torch.tensor(lengths)[:, None]


def inputs(
    rewards: list[float],
    lengths: list[int],
    *,
    log_ratios: torch.Tensor | None = None,
    groups: list[object] | None = None,
    discount: float = 1.0,
    kl_coef: float = 0.0,
) -> AdvantageInputs:
    mask = mask_of(*lengths)
    return AdvantageInputs(
        rewards=torch.tensor(rewards),
        mask=mask,
        log_ratios=torch.zeros(mask.shape) if log_ratios is None else log_ratios,
        groups=groups or [0] * len(rewards),  # type: ignore[arg-type]
        discount=discount,
        kl_coef=kl_coef,
    )


# ---- REINFORCE++ ----


def test_reinforce_pp_whitens_over_all_response_tokens():
    # Returns [1, 1] and [0]: mean 2/3 over three tokens, variance
    # (2 (1/3)^2 + (2/3)^2) / 3 = 2/9; (1/3) / sqrt(2/9) = 1/sqrt(2), -(2/3) / sqrt(2/9) = -sqrt(2).
    advantages = reinforce_pp(inputs([1.0, 0.0], [2, 1]))
    expected = torch.tensor([[0.5**0.5, 0.5**0.5], [-(2**0.5), 0.0]])
    torch.testing.assert_close(advantages, expected)


def test_the_kl_penalty_accumulates_from_a_token_to_the_end():
    # beta times log-ratios = [0.2, 0.1]: A_1 = 1 - 0.2 - 0.1 = 0.7, A_2 = 1 - 0.1 = 0.9 (eq. 9).
    returns = token_returns(inputs([1.0], [2], log_ratios=torch.tensor([[2.0, 1.0]]), kl_coef=0.1))
    torch.testing.assert_close(returns, torch.tensor([[0.7, 0.9]], dtype=torch.float64))


def test_the_discount_applies_from_the_rewarded_last_token_backwards():
    # Token rewards [-0.2, -0.1 + 1]: A_2 = 0.9, A_1 = -0.2 + 0.5 * 0.9 = 0.25.
    log_ratios = torch.tensor([[2.0, 1.0, 7.0]])  # the third token is padding
    padded = inputs(
        [1.0, 0.0], [2, 3], log_ratios=torch.cat([log_ratios, torch.zeros(1, 3)]), kl_coef=0.1
    )
    returns = token_returns(replace(padded, discount=0.5))
    torch.testing.assert_close(returns[0, :2], torch.tensor([0.25, 0.9], dtype=torch.float64))


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


@pytest.mark.parametrize("name", sorted(ADVANTAGE_ESTIMATORS))
def test_padding_changes_no_advantage(name):
    def estimator(data: AdvantageInputs) -> torch.Tensor:
        return ADVANTAGE_ESTIMATORS[name].advantages(replace(data, memory={}))

    tight = inputs([1.0, 0.0, 0.5], [2, 3, 1], log_ratios=torch.ones(3, 3), kl_coef=0.1)
    garbage = torch.cat([tight.log_ratios, torch.full((3, 4), 9.0)], dim=1)
    wide = replace(tight, mask=mask_of(2, 3, 1, width=7), log_ratios=garbage)
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


# ---- The other estimators with groups ----


def test_reinforce_pp_baseline_whitens_what_is_left_of_the_group_mean():
    # a: 1, 0 become 0.5, -0.5; b: 0.2, 0.2 become 0, 0. Over tokens 0.5 0.5 -0.5 0 0 0: mean 1/12,
    # mean of squares 0.75 / 6 = 1/8, variance 1/8 - 1/144 = 17/144, so (12 x - 1) / sqrt(17).
    advantages = reinforce_pp_baseline(
        inputs([1.0, 0.2, 0.0, 0.2], [2, 1, 1, 2], groups=["a", "b", "a", "b"])
    )
    expected = torch.tensor([[5.0, 5.0], [-1.0, 0.0], [-7.0, 0.0], [-1.0, -1.0]]) / 17**0.5
    torch.testing.assert_close(advantages, expected)


def test_the_kl_penalty_of_reinforce_pp_baseline_is_in_the_loss_alone():
    plain = inputs([1.0, 0.0], [2, 1])
    penalised = replace(plain, log_ratios=torch.ones(2, 2), kl_coef=0.5)
    assert torch.equal(reinforce_pp_baseline(plain), reinforce_pp_baseline(penalised))
    assert ADVANTAGE_ESTIMATORS["reinforce_pp_baseline"].kl_loss == "k2"


def test_dr_grpo_subtracts_the_group_mean_and_divides_by_nothing():
    # a: 1, 0: mean 0.5. b: 1, 0, 0.8: mean 0.6.
    groups = ["a", "b", "b", "a", "b"]
    advantages = dr_grpo(inputs([1.0, 1.0, 0.0, 0.0, 0.8], [1, 2, 1, 1, 1], groups=groups))
    expected = torch.tensor([[0.5, 0.0], [0.4, 0.4], [-0.6, 0.0], [-0.5, 0.0], [0.2, 0.0]])
    torch.testing.assert_close(advantages, expected)


def test_rloo_compares_each_return_with_the_mean_of_the_others():
    # 1 - (0 + 0.5) / 2 = 0.75, 0 - (1 + 0.5) / 2 = -0.75, 0.5 - (1 + 0) / 2 = 0.
    advantages = rloo(inputs([1.0, 0.0, 0.5], [2, 1, 1]))
    expected = torch.tensor([[0.75, 0.75], [-0.75, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(advantages, expected)


def test_the_kl_penalty_of_rloo_is_that_of_the_whole_response():
    # R = 1 - 0.1 (2 + 1) = 0.7 and 0.6 - 0.1 * 1 = 0.5; what is padded (9) does not count.
    log_ratios = torch.tensor([[2.0, 1.0], [1.0, 9.0]])
    advantages = rloo(inputs([1.0, 0.6], [2, 1], log_ratios=log_ratios, kl_coef=0.1))
    torch.testing.assert_close(advantages, torch.tensor([[0.2, 0.2], [-0.2, 0.0]]))


def test_dr_mas_standardises_with_a_floor_of_a_millionth():
    # Mean 1e-6, std sqrt(2) * 1e-6: 1e-6 / (sqrt(2) * 1e-6 + 1e-6) = sqrt(2) - 1.
    advantages = dr_mas(inputs([2e-6, 0.0], [1, 1]))
    torch.testing.assert_close(advantages[:, 0], torch.tensor([2**0.5 - 1, 1 - 2**0.5]))


@pytest.mark.parametrize(
    ("estimator", "alone"),
    [(grpo, 0.0), (dr_grpo, 0.0), (rloo, 0.0), (at_grpo, 0.0), (dr_mas, 0.7 / (1 + 1e-6))],
)
def test_a_response_alone_in_its_group(estimator, alone):
    advantages = estimator(inputs([1.0, 0.0, 0.7], [1, 1, 1], groups=["a", "a", "b"]))
    assert advantages[2, 0].item() == pytest.approx(alone)


def test_whether_a_lone_response_has_an_advantage_is_found_by_asking():
    needing = {name for name, of in ADVANTAGE_ESTIMATORS.items() if needs_others(of)}
    assert needing == {"reinforce_pp_baseline", "grpo", "dr_grpo", "rloo", "at_grpo"}
    whole = AdvantageEstimator(lambda data: data.on_every_token(data.rewards))
    assert not needs_others(whole)


@pytest.mark.parametrize("name", sorted(set(ADVANTAGE_ESTIMATORS) - {"rae"}))
@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0, -1.0])
def test_equal_rewards_have_no_advantage(name, reward):
    data = inputs([reward] * 7, [3, 1, 2, 5, 1, 1, 4], groups=list("aabbabb"))
    assert ADVANTAGE_ESTIMATORS[name].advantages(data).abs().max() < 1e-6


# ---- RAE ----


def test_rae_compares_with_the_baseline_before_the_response_moves_it():
    # Group a: 1 - 0 = 1, b = 0.05; 1 - 0.05 = 0.95, b = 0.0475 + 0.05 = 0.0975; 0 - 0.0975.
    # Group b has a baseline of its own: 0.5 - 0.
    data = inputs([1.0, 0.5, 1.0, 0.0], [1, 2, 1, 1], groups=["a", "b", "a", "a"])
    expected = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.95, 0.0], [-0.0975, 0.0]])
    torch.testing.assert_close(rae(data), expected)
    assert data.memory == pytest.approx({"a": 0.092625, "b": 0.025})


def test_rae_goes_on_from_what_it_remembers():
    rewards, groups = [1.0, 0.0, 0.5, 1.0, 1.0, 0.25], ["a", "b", "a", "a", "b", "b"]
    whole = rae(inputs(rewards, [1] * 6, groups=groups))
    first = inputs(rewards[:2], [1] * 2, groups=groups[:2])
    second = replace(inputs(rewards[2:], [1] * 4, groups=groups[2:]), memory=first.memory)
    assert torch.equal(torch.cat([rae(first), rae(second)]), whole)


# ---- Groups ----


def advantages_of(
    samples: list[TrainingSample],
    name: str,
    group_by: list[str] | None = None,
    **others: object,
):
    mask = response_mask(samples)
    advantages = compute_advantages(
        samples,
        mask=mask,
        log_ratios=torch.zeros(mask.shape),
        optimization=Optimization(estimator=name, group_by=group_by, **others),
        memory={},
    )
    return advantages[:, 0].tolist()


def sample(reward: float, **fields: object) -> TrainingSample:
    return builders.sample(reward=reward, **fields)


def test_each_role_learns_at_its_own_rate():
    samples = [sample(1.0), sample(0.0), sample(1.0, role="scoring"), sample(0.0, role="scoring")]
    assert advantages_of(samples, "grpo") == pytest.approx([0.5**0.5, -(0.5**0.5)] * 2)
    slower = advantages_of(samples, "grpo", role_weights={"scoring": 0.1, "evaluation": 5})
    assert slower == pytest.approx([0.5**0.5, -(0.5**0.5), 0.1 * 0.5**0.5, -0.1 * 0.5**0.5])


def test_advantages_use_the_configured_groups():
    samples = [sample(1.0), sample(0.0), sample(0.3, role="scoring")]
    found = advantages_of(samples, "grpo", ["question_id", "role"])
    assert found == pytest.approx([0.5**0.5, -(0.5**0.5), 0.0])
    # 1, 0, 0.3 of one group: mean 1.3 / 3.
    found = advantages_of(samples, "dr_grpo", ["question_id"])
    assert found == pytest.approx([1.7 / 3, -1.3 / 3, -0.4 / 3])


@pytest.mark.parametrize(
    ("name", "apart", "together"),
    [
        ("grpo", ("question_id", "role"), ("agent_index", "round_index", "discussion_id")),
        ("dr_mas", ("question_id", "role", "agent_index"), ("round_index", "discussion_id")),
        ("at_grpo", ("question_id", "round_index", "role", "agent_index"), ("discussion_id",)),
        ("rae", ("role", "agent_index"), ("question_id", "round_index", "discussion_id")),
    ],
)
def test_the_groups_of_an_estimator_differ_by_its_own_keys_alone(name, apart, together):
    other = {
        "agent_index": 1,
        "question_id": "p",
        "discussion_id": "e",
        "round_index": 1,
        "role": "scoring",
    }
    assert {*apart, *together} == set(GROUP_KEYS)
    alone = advantages_of([sample(0.0)], name)
    for key in GROUP_KEYS:
        [found, _] = advantages_of([sample(0.0), sample(1.0, **{key: other[key]})], name)
        [_, second] = advantages_of([sample(1.0), sample(0.0, **{key: other[key]})], name)
        assert ([found] == alone and [second] == alone) == (key in apart)


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
        kl=data.log_ratios,
        action_mask=data.mask,
        info={},
    )
    [done] = RemoteExperienceMaker.compute_advantages_and_returns(maker, [experience])
    return done.advantages * data.mask


@pytest.mark.parametrize(("discount", "kl_coef"), [(1.0, 0.0), (1.0, 0.2), (0.9, 0.2)])
def test_reinforce_pp_equals_openrlhf(monkeypatch, discount, kl_coef):
    log_ratios = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    data = inputs(
        [1.0, 0.0, 0.5, -1.0],
        [6, 2, 4, 1],
        log_ratios=log_ratios,
        discount=discount,
        kl_coef=kl_coef,
    )
    expected = openrlhf_advantages(monkeypatch, "reinforce", data, copies=1)
    torch.testing.assert_close(reinforce_pp(data), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("estimator", "theirs"),
    [
        (grpo, "group_norm"),
        (dr_grpo, "dr_grpo"),
        (rloo, "rloo"),
        (reinforce_pp_baseline, "reinforce_baseline"),
    ],
)
def test_groups_of_equal_size_have_openrlhfs_advantages(monkeypatch, estimator, theirs):
    data = inputs([1.0, 0.0, 0.5, -1.0, 0.0, 0.0], [6, 2, 4, 1, 3, 3], groups=list("aaabbb"))
    expected = openrlhf_advantages(monkeypatch, theirs, data, copies=3)
    torch.testing.assert_close(estimator(data), expected, rtol=1e-5, atol=1e-6)
