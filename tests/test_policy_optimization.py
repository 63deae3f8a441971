"""Samples, losses and batches, computed by hand."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from comas.config.keys import keys_of
from comas.config.schema import Config, Optimization
from comas.policy_optimization import logprobs
from comas.policy_optimization.batching import (
    StepTotals,
    assemble,
    num_optimizer_steps,
    response_mask,
    rollout_logprobs,
    sample_cost,
    split_into_micro_batches,
    split_into_steps,
)
from comas.policy_optimization.logprobs import token_logprobs
from comas.policy_optimization.losses import (
    ROLLOUT_CORRECTIONS,
    TOKEN_LEVEL,
    Surrogate,
    Targets,
    approximate_kl,
    clipped_surrogate,
    kl_penalty,
    loss_aggregation,
)
from comas.policy_optimization.openrlhf_import import openrlhf_module
from comas.policy_optimization.samples import (
    GROUP_KEYS,
    collect_samples,
    group_keys,
    overlong_punishment,
    penalise_length,
)
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


def sample(prompt: int = 2, response: int = 3, **fields: object) -> TrainingSample:
    values = {
        "agent_index": 0,
        "question_id": "q",
        "discussion_id": "d",
        "turn_id": "r0.s0",
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
        1, "q", "d", "r1.s0", 1, "evaluation", (5, 8), (7, 9, 1), (-0.1, -0.7, -0.2), 0.5
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


# ---- Losses ----


def totals(
    num_tokens: int, num_samples: int = 1, num_ranks: int = 1, *, longest: int = 99
) -> StepTotals:
    return StepTotals(num_tokens, num_samples, longest, num_ranks)


def surrogate(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    step: StepTotals,
    aggregation: str = "token_mean",
) -> tuple[torch.Tensor, torch.Tensor]:
    settings = Optimization(loss_aggregation=aggregation)
    found = corrected(logprobs, old, torch.zeros_like(old), advantages, mask, step, settings)
    assert found.num_corrected == found.num_correctable == 0
    return found.loss, found.num_clipped


def corrected(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    rollout: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    step: StepTotals,
    settings: Optimization,
) -> Surrogate:
    targets = Targets(mask, advantages, old, None, None, rollout)
    return clipped_surrogate(logprobs, targets=targets, totals=step, optimization=settings)


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


def test_every_aggregation_can_be_configured():
    assert keys_of(Config)["optimization.loss_aggregation"].rules.one_of == tuple(TOKEN_LEVEL)


def test_constant_length_weighs_every_token_alike_whatever_is_said_beside_it():
    # Losses 1, 1, 1 and 5 of two responses of at most 4 tokens: (1 + 1 + 1 + 5) / (2 * 4) = 1.
    # A token's weight, 1 / 8, is the same in a step with other lengths.
    advantages = -torch.tensor([[1.0, 1.0, 1.0], [5.0, 0.0, 0.0]])
    logprobs = torch.zeros(2, 3, requires_grad=True)
    step = totals(4, 2, longest=4)
    loss, _ = surrogate(
        logprobs, torch.zeros(2, 3), advantages, mask_of(3, 1), step, "constant_length"
    )
    assert loss.item() == pytest.approx(1.0)
    loss.backward()
    torch.testing.assert_close(logprobs.grad, -advantages / 8)


def test_the_aggregation_is_the_configured_one_or_the_estimators_or_the_mean_over_tokens():
    assert loss_aggregation(Optimization()) == "token_mean"
    assert loss_aggregation(Optimization(estimator="dr_grpo")) == "constant_length"
    assert loss_aggregation(Optimization(loss_aggregation="sequence_mean")) == "sequence_mean"


@pytest.mark.parametrize("aggregation", TOKEN_LEVEL)
@pytest.mark.parametrize("cuts", [[[0, 1, 2, 3]], [[3], [0, 2], [1]], [[0], [1], [2], [3], []]])
def test_loss_and_gradient_do_not_depend_on_micro_batches(aggregation, cuts):
    generator = torch.Generator().manual_seed(0)
    logprobs, old, advantages = torch.randn(3, 4, 5, generator=generator).unbind()
    logprobs.requires_grad_()
    mask = mask_of(5, 2, 3, 1)
    targets = Targets(mask, advantages, old, None, None, torch.zeros(4, 5))
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


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "num_clipped"),
    [
        (1.25, 1.0, -1.25, 0),  # between 1 + 0.2 and 1 + 0.3
        (1.5, 1.0, -1.3, 1),
        (0.5, -1.0, 0.8, 1),  # the lower bound is that of clip_epsilon
    ],
)
def test_clip_higher_widens_the_upper_bound_alone(ratio, advantage, loss, num_clipped):
    found = corrected(
        tensor([math.log(ratio)]),
        *(tensor([0.0]), tensor([0.0]), tensor([advantage]), mask_of(1), totals(1)),
        Optimization(clip_epsilon_high=0.3),
    )
    assert found.loss.item() == pytest.approx(loss)
    assert found.num_clipped.item() == num_clipped


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [(5.0, -1.0, 3.0), (2.0, -1.0, 2.0), (5.0, 1.0, -1.2), (0.5, -1.0, 0.8)],
)
def test_dual_clip_bounds_the_loss_of_a_negative_advantage(ratio, advantage, loss):
    found = corrected(
        tensor([math.log(ratio)]),
        *(tensor([0.0]), tensor([0.0]), tensor([advantage]), mask_of(1), totals(1)),
        Optimization(dual_clip=3.0),
    )
    assert found.loss.item() == pytest.approx(loss)


# Ratios pi_old / pi_rollout of two responses; their geometric means are 2 and (0.25 * 4)^(1/2) = 1.
RATIOS = torch.tensor([[1.0, 4.0], [0.25, 4.0], [2.0, 1.0]])
RATIO_MASK = torch.tensor([[True, True], [True, True], [True, False]])


@pytest.mark.parametrize(
    ("name", "bounds", "weights", "num_corrected", "num_correctable"),
    [
        ("tis", None, [[1.0, 2.0], [0.25, 2.0], [2.0, 0.0]], 2, 5),
        ("tis", (0.5, 3.0), [[1.0, 3.0], [0.5, 3.0], [2.0, 0.0]], 3, 5),
        ("icepop", None, [[1.0, 4.0], [0.0, 4.0], [2.0, 0.0]], 1, 5),
        ("icepop", (0.5, 3.0), [[1.0, 0.0], [0.0, 0.0], [2.0, 0.0]], 3, 5),
        ("seq_mask_tis", None, [[1.0, 4.0], [0.25, 4.0], [2.0, 0.0]], 0, 3),
        ("seq_mask_tis", (0.5, 1.5), [[0.0, 0.0], [0.25, 4.0], [0.0, 0.0]], 2, 3),
    ],
)
def test_a_correction_weighs_tokens_by_their_ratios_within_its_bounds(
    name, bounds, weights, num_corrected, num_correctable
):
    settings = Optimization(rollout_correction=name, rollout_ratio_bounds=bounds)
    logprobs = torch.zeros(3, 2, requires_grad=True)
    rollout = -RATIOS.log() * RATIO_MASK
    found = corrected(
        *(logprobs, torch.zeros(3, 2), rollout, torch.ones(3, 2), RATIO_MASK, totals(5, 3)),
        settings,
    )
    # What is left out still counts in the denominator: 5 tokens.
    assert found.loss.item() == pytest.approx(-sum(map(sum, weights)) / 5)
    found.loss.backward()
    torch.testing.assert_close(logprobs.grad, -torch.tensor(weights) / 5)
    assert (found.num_corrected.item(), found.num_correctable.item()) == (
        pytest.approx(num_corrected),
        num_correctable,
    )


@pytest.mark.parametrize("name", ["tis", "icepop", "seq_mask_tis"])
def test_an_empty_micro_batch_has_nothing_to_correct(name):
    zeros, no_token = torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.bool)
    found = corrected(
        *(zeros.clone().requires_grad_(), zeros, zeros, zeros, no_token, totals(7)),
        Optimization(rollout_correction=name),
    )
    assert [value.item() for value in found] == [0, 0, 0, 0]


def test_every_correction_can_be_configured():
    keys = keys_of(Config)
    assert keys["optimization.rollout_correction"].rules.one_of == tuple(ROLLOUT_CORRECTIONS)


# ---- Length ----


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [(1, 0.0), (80, 0.0), (81, -0.05), (85, -0.25), (99, -0.95), (100, -1.0)],
)
def test_rewards_fall_evenly_over_the_last_tokens_before_the_limit(num_tokens, expected):
    found = overlong_punishment(num_tokens, buffer_tokens=20, max_response_tokens=100)
    assert found == pytest.approx(expected)


def test_the_length_penalty_is_added_to_the_rewards_and_off_without_a_buffer():
    samples = [sample(response=2, reward=1.0), sample(response=4, reward=0.25)]
    limits = {"max_response_tokens": 4}
    found = penalise_length(samples, buffer_tokens=2, **limits)
    assert [s.reward for s in found] == [1.0, -0.75]
    assert [replace(s, reward=0.0) for s in found] == [replace(s, reward=0.0) for s in samples]
    assert penalise_length(samples, buffer_tokens=None, **limits) is samples


# ---- The loss of an update ----


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
    found, _ = token_logprobs(torch.ones(1, 1), weight, torch.tensor([1]), temperature=temperature)
    assert found.exp().item() == pytest.approx(probability)


def test_the_entropy_is_that_of_the_distribution_at_the_temperature():
    # Probabilities 3/4 and 1/4: ln 4 - 3/4 ln 3 = 0.5623 nats; logits that are equal: ln 2.
    weight = torch.tensor([[0.0], [2 * math.log(3)]])
    hidden, token_ids = torch.tensor([[1.0], [0.0]]), torch.tensor([1, 1])
    _, entropies = token_logprobs(hidden, weight, token_ids, temperature=2.0)
    expected = [math.log(4) - 0.75 * math.log(3), math.log(2)]
    assert entropies.tolist() == pytest.approx(expected)


def test_a_certain_token_has_no_entropy():
    weight = torch.tensor([[0.0], [1e4], [-1e4]])
    _, entropies = token_logprobs(torch.ones(1, 1), weight, torch.tensor([1]), temperature=1.0)
    assert entropies.item() == 0


@pytest.mark.parametrize("num_tokens", [0, 1, 7, 8, 9, 20])
def test_chunks_of_logits_give_the_logprobs_and_gradients_of_all_at_once(monkeypatch, num_tokens):
    monkeypatch.setattr(logprobs, "CHUNK_SIZE", 8)
    monkeypatch.setattr(logprobs, "PIECE_SIZE", 3)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(num_tokens, 5, generator=generator).requires_grad_()
    weight = torch.randn(11, 5, generator=generator).requires_grad_()
    token_ids = torch.randint(11, (num_tokens,), generator=generator)
    upstream = torch.randn(num_tokens, generator=generator)
    all_logprobs = (hidden @ weight.T / 0.7).log_softmax(-1)
    expected = all_logprobs[range(num_tokens), token_ids]
    found, entropies = token_logprobs(hidden, weight, token_ids, temperature=0.7)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    of_all = -(all_logprobs.exp() * all_logprobs).sum(dim=1).detach()
    torch.testing.assert_close(entropies, of_all, rtol=0, atol=1e-5)
    assert not entropies.requires_grad
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
    found, entropies = token_logprobs(hidden, weight, token_ids, temperature=1.0)
    assert found.dtype == entropies.dtype == torch.float32
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


def test_pairs_stay_together_in_optimiser_steps_and_micro_batches():
    # Four samples are two pairs: 5 pairs make 2.5, which is rounded up to 3 steps.
    steps = split_into_steps(10, train_batch_size=4, rng=Random(0), unit=2)
    assert len(steps) == 3
    assert sorted(i for indices in steps for i in indices) == list(range(10))
    pairs = [pair for step in steps for pair in zip(step[::2], step[1::2], strict=True)]
    assert all(a % 2 == 0 and b == a + 1 for a, b in pairs)
    # Pairs of 5 + 2, 4 + 4 and 3 + 3 tokens, one in a micro batch: 8 | 7, then 6 to the rank of 7.
    shares = split_into_micro_batches(
        [5, 2, 4, 4, 3, 3], micro_batch_size=1, micro_batch_tokens=None, num_ranks=2, unit=2
    )
    assert shares == [[[2, 3], []], [[0, 1], [4, 5]]]


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
    assert rollout_logprobs(samples).tolist() == [[-0.5, 0.0, 0.0], [-0.5, -1.5, -2.5]]
    assert response_mask(samples).int().tolist() == [[1, 0, 0], [1, 1, 1]]
