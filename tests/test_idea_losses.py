"""Losses beyond the paper's: hand-computed, and equal to those of others."""

import math

import pytest
import torch
from small_runs import REPOSITORY
from tables import cases

from comas.config.schema import Custom
from comas.policy_optimization.batching import StepTotals
from comas.policy_optimization.losses import Surrogate, Targets, policy_loss
from comas.policy_optimization.openrlhf_import import openrlhf_module
from comas.preflight.configuration import load_config

MASK = torch.arange(5) < torch.tensor([5, 2, 3])[:, None]


def surrogate(logprobs, old, advantages, mask, *, loss: str, **settings) -> Surrogate:
    algorithm = Custom(loss=f"comas.ideas.losses:{loss}", **settings)
    targets = Targets(mask, advantages, old, None, None, torch.zeros_like(old))
    totals = StepTotals(int(mask.sum()), len(mask), mask.shape[1], 1)
    return policy_loss(logprobs, targets=targets, totals=totals, algorithm=algorithm)


def of_ratios(ratios: list[float], advantage: float, **settings) -> tuple[Surrogate, list[float]]:
    """The surrogate of one response whose old log-probs are 0, and the gradient times T."""
    logprobs = torch.tensor([ratios]).log().requires_grad_()
    ones = torch.ones(1, len(ratios))
    found = surrogate(logprobs, 0 * ones, advantage * ones, ones.bool(), **settings)
    found.loss.backward()
    assert logprobs.grad is not None
    return found, (logprobs.grad[0] * len(ratios)).tolist()


@cases("settings, weights, num_clipped")
@pytest.mark.parametrize("advantage", [2.0, -2.0])
def test_cispo_clips_weights_and_keeps_every_gradient(settings, weights, num_clipped, advantage):
    found, grads = of_ratios([8.0, 0.1], advantage, loss="cispo", **settings)
    high, low = weights
    mean = (high * math.log(8) + low * math.log(0.1)) / 2
    assert found.loss.item() == pytest.approx(-advantage * mean)
    assert grads == pytest.approx([-advantage * high, -advantage * low])
    assert found.num_clipped == num_clipped


def random_numbers() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    logprobs, step = torch.randn(2, 3, 5, generator=generator)
    advantages = torch.randn(3, 1, generator=generator).expand(3, 5)
    return logprobs.requires_grad_(), logprobs.detach() + 0.3 * step, advantages


def test_gspo_is_openrlhfs_in_value_and_gradient():
    logprobs, old, advantages = random_numbers()
    theirs = openrlhf_module("loss").PolicyLoss(
        clip_eps_low=0.05, clip_eps_high=0.1, policy_loss_type="gspo"
    )
    expected, share, *_ = theirs(logprobs, old, advantages, action_mask=MASK.float())
    found = surrogate(
        logprobs,
        old,
        advantages,
        MASK,
        loss="gspo",
        clip_epsilon=0.05,
        clip_epsilon_high=0.1,
        loss_aggregation="sequence_mean",
    )
    torch.testing.assert_close(found.loss, expected)
    assert 0 < found.num_clipped < MASK.sum()
    torch.testing.assert_close(found.num_clipped / MASK.sum(), share)
    gradients = (torch.autograd.grad(loss, logprobs)[0] for loss in (found.loss, expected))
    torch.testing.assert_close(*gradients)


def test_dapos_clipping_is_a_setting_of_the_core():
    """-min(rho A, clip(rho, 1 - 0.2, 1 + 0.28) A) of DAPO's equation 8, over all tokens."""
    algorithm = load_config(REPOSITORY / "configs/ideas/dapo.yaml", []).algorithm
    algorithm.kl_coef = 0.0
    ratios, advantages = torch.tensor([[1.25, 1.5, 0.5]]), torch.tensor([[1.0, 1.0, -1.0]])
    targets = Targets(advantages != 0, advantages, 0 * ratios, None, None, 0 * ratios)
    found = policy_loss(
        ratios.log(), targets=targets, totals=StepTotals(3, 1, 3, 1), algorithm=algorithm
    )
    assert found.loss.item() == pytest.approx((-1.25 - 1.28 + 0.8) / 3)
    assert found.num_clipped == 2
