"""Advantages, computed by hand: the paper's, and those of the ideas."""

from dataclasses import replace

import builders
import pytest
import torch
from tables import cases

from comas.config.schema import Custom, Grpo, ReinforcePP
from comas.config.schema.algorithm import GROUP_KEYS
from comas.ideas import advantages as ideas
from comas.policy_optimization.advantages import (
    ADVANTAGE_ESTIMATORS,
    AdvantageEstimator,
    AdvantageInputs,
)
from comas.types import TrainingSample

IDEAS = [name for name, value in vars(ideas).items() if isinstance(value, AdvantageEstimator)]
ESTIMATORS = dict(ADVANTAGE_ESTIMATORS) | {name: vars(ideas)[name] for name in IDEAS}
HALF = 0.5**0.5


def inputs(rewards, lengths, *, log_ratios=None, groups=None, kl_coef=0.0) -> AdvantageInputs:
    mask = builders.mask_of(*lengths)
    return AdvantageInputs(
        rewards=torch.tensor(rewards),
        mask=mask,
        log_ratios=torch.zeros(mask.shape) if log_ratios is None else log_ratios,
        groups=groups or "a" * len(rewards),
        kl_coef=kl_coef,
    )


def test_the_kl_penalty_is_part_of_the_returns():
    # Returns with beta 0.1: 1 - 0.1 (2 + 1) = 0.7 and 1 - 0.1 = 0.9; the second response's 0.
    data = inputs([1.0, 0.0], [2, 1], log_ratios=torch.tensor([[2.0, 1], [0, 9]]), kl_coef=0.1)
    returns = torch.tensor([0.7, 0.9, 0.0], dtype=torch.float64)
    whitened = (returns - returns.mean()) / returns.std(unbiased=False)
    found = ESTIMATORS["reinforce_pp"].advantages(data)
    torch.testing.assert_close(found[data.mask], whitened.float())


@cases("name, rewards, lengths, groups, expected")
def test_an_estimator_by_hand(name, rewards, lengths, groups, expected):
    found = ESTIMATORS[name].advantages(inputs(rewards, lengths, groups=groups))
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_padding_changes_no_advantage(name):
    def estimate(data: AdvantageInputs) -> torch.Tensor:
        return ESTIMATORS[name].advantages(replace(data, memory={}))

    tight = inputs([1.0, 0.0, 0.5], [2, 3, 1], log_ratios=torch.ones(3, 3), kl_coef=0.1)
    garbage = torch.cat([tight.log_ratios, torch.full((3, 4), 9.0)], dim=1)
    wide = replace(tight, mask=builders.mask_of(2, 3, 1, width=7), log_ratios=garbage)
    torch.testing.assert_close(estimate(wide)[:, :3], estimate(tight))
    assert estimate(wide)[:, 3:].abs().max() == 0


def test_where_the_kl_penalty_is():
    data = inputs([1.0, 0.6], [2, 1], log_ratios=torch.tensor([[2.0, 1], [1, 9]]), kl_coef=0.1)
    for name, estimator in ESTIMATORS.items():
        free = estimator.advantages(replace(data, kl_coef=0.0, memory={}))
        reads = not torch.equal(free, estimator.advantages(data))
        assert reads == (estimator.kl_loss is None), name


def test_a_kl_penalty_in_the_loss_is_in_no_advantage(monkeypatch):
    both = ESTIMATORS["reinforce_pp"]._replace(kl_loss="k2")  # which reads the log-ratios
    monkeypatch.setitem(ADVANTAGE_ESTIMATORS, "both", both)
    samples = [sample(1.0, response_token_ids=(3, 4)), sample(0.0)]
    found = builders.advantages_of(samples, Custom(estimator="both", kl_coef=0.1), ratio=2.0)
    assert torch.equal(found, builders.advantages_of(samples, ReinforcePP()))


def test_rae_goes_on_from_what_it_remembers():
    rewards, groups = [1.0, 0.0, 0.5, 1.0, 1.0, 0.25], ["1a", "1b", "2a", "2a", "2b", "3b"]
    whole = ESTIMATORS["rae"].advantages(inputs(rewards, [1] * 6, groups=groups))
    first = inputs(rewards[:2], [1] * 2, groups=groups[:2])
    second = replace(inputs(rewards[2:], [1] * 4, groups=groups[2:]), memory=first.memory)
    parts = [ESTIMATORS["rae"].advantages(data) for data in (first, second)]
    assert torch.equal(torch.cat(parts), whole)


def firsts(samples: list[TrainingSample], algorithm: Grpo | Custom | ReinforcePP) -> list[float]:
    """The advantages of the first tokens."""
    return builders.advantages_of(samples, algorithm)[:, 0].tolist()


def sample(reward: float, **fields: object) -> TrainingSample:
    return builders.sample(reward=reward, **fields)


def test_advantages_use_the_rates_of_roles_and_the_configured_groups():
    samples = [sample(1.0), sample(0.0), sample(1.0, role="scoring"), sample(0.0, role="scoring")]
    assert firsts(samples, Grpo()) == pytest.approx([HALF, -HALF] * 2)
    slower = firsts(samples, Grpo(role_weights={"scoring": 0.1, "evaluation": 5}))
    assert slower == pytest.approx([HALF, -HALF, 0.1 * HALF, -0.1 * HALF])
    samples = [sample(1.0), sample(0.0), sample(0.3, role="scoring")]
    assert firsts(samples, Grpo()) == pytest.approx([HALF, -HALF, 0.0])
    # 1, 0, 0.3 of one group: mean 1.3 / 3, variance (1.7^2 + 1.3^2 + 0.4^2) / 9 / 2.
    std = ((1.7**2 + 1.3**2 + 0.4**2) / 18) ** 0.5
    whole = firsts(samples, Grpo(group_by=["question_id"]))
    assert whole == pytest.approx([1.7 / 3 / std, -1.3 / 3 / std, -0.4 / 3 / std])


@cases(
    "algorithm, apart",
    (Grpo(), {"question_id", "role"}),
    (Grpo(group_by=["question_id", "agent_index"]), {"question_id", "agent_index"}),
)
def test_the_groups_of_an_estimator_differ_by_its_own_keys_alone(algorithm, apart):
    alone = firsts([sample(0.0)], algorithm)
    for key in GROUP_KEYS:
        [found, _] = firsts([sample(0.0), sample(1.0, **{key: "another"})], algorithm)
        [_, second] = firsts([sample(1.0), sample(0.0, **{key: "another"})], algorithm)
        assert ([found] == alone and [second] == alone) == (key in apart)
