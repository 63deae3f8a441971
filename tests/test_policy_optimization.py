"""Samples, losses, batches and learning rates, computed by hand."""

import math
from dataclasses import replace
from functools import partial
from math import sqrt
from random import Random
from typing import get_args

import builders
import pytest
import torch
from builders import discussion, mask_of, turn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tables import case_file, cases

from comas.config.schema import Custom, Dpo, Grpo, Optimization, ReinforcePP
from comas.config.schema.algorithm import Correction
from comas.engines.policy.optimizers import create_schedule
from comas.policy_optimization import balancing, batching, logprobs, losses
from comas.policy_optimization.logprobs import token_logprobs
from comas.policy_optimization.openrlhf_import import openrlhf_module
from comas.policy_optimization.samples import collect_samples
from comas.types import Generation, RewardedDiscussion, TrainingSample


def sample(response: int = 3, **fields: object) -> TrainingSample:
    return builders.sample(**{"response_token_ids": range(response)} | fields)


def rewarded(name: str, agents: list[int], rewards: list[float | None]) -> RewardedDiscussion:
    turns = (turn(f"r0.s{i}", agent=agent) for i, agent in enumerate(agents))
    return RewardedDiscussion(discussion(*turns, name=name), tuple(rewards))


def test_each_policy_gets_what_its_agents_said_and_was_rewarded_in_order():
    first = rewarded("a", [2, 0, 1, 1], [0.1, 0.2, 0.3, None])
    second = rewarded("b", [0], [0.4])
    buffers = collect_samples([first, second], policy_of_agent=[0, 0, 1], mask_truncated=True)
    assert [[s.reward for s in buffer] for buffer in buffers] == [[0.2, 0.3, 0.4], [0.1]]
    assert [s.discussion_id for s in buffers[0]] == ["a", "a", "b"]


@pytest.mark.parametrize("reason", ["stop", "length"])
@pytest.mark.parametrize("mask_truncated", [True, False])
def test_a_sample_holds_what_was_sampled_and_is_left_out_when_truncated(mask_truncated, reason):
    said = Generation((5, 8), (7, 9, 1), "71", (-0.1, -0.7, -0.2), reason, 3)
    spoken = replace(turn("r1.s0.e0", agent=1), generation=said)
    item = RewardedDiscussion(discussion(spoken), (0.5,))
    [_, buffer] = collect_samples([item], policy_of_agent=[0, 1], mask_truncated=mask_truncated)
    tokens = (5, 8), (7, 9, 1), (-0.1, -0.7, -0.2)
    expected = TrainingSample(1, "q", "d", "r1.s0.e0", 1, "evaluation", *tokens, 0.5)
    assert buffer == ([] if reason == "length" and mask_truncated else [expected])


def totals(num_tokens, num_samples=1, num_ranks=1, *, longest=99) -> batching.StepTotals:
    return batching.StepTotals(num_tokens, num_samples, longest, num_ranks)


def surrogate(
    logprobs, advantages, mask, step, *, old=0.0, rollout=0.0, **settings
) -> losses.Surrogate:
    """The surrogate where the old log-probs and the rollout's are 0, unless others are given."""
    zeros = torch.zeros_like(advantages)
    targets = losses.Targets(mask, advantages, zeros + old, None, None, zeros + rollout)
    algorithm = Custom(loss="clipped_surrogate", **settings)  # type: ignore[arg-type]
    return losses.policy_loss(logprobs, targets=targets, totals=step, algorithm=algorithm)


@cases("settings, ratio, advantage, loss, num_clipped")
def test_the_surrogate_clips_gains(settings, ratio, advantage, loss, num_clipped):
    logprobs, advantages = torch.tensor([[math.log(ratio)]]), torch.tensor([[advantage]])
    found = surrogate(logprobs, advantages, mask_of(1), totals(1), **settings)
    assert found.loss.item() == pytest.approx(loss)
    assert found.num_clipped.item() == num_clipped
    assert found.num_corrected == 0


@cases(
    "aggregation, weights, loss",
    # Of a step of 7 tokens in 4 responses of at most 4: losses 1 and 2 of one response, between
    # which a tool's token is, and 5 of another.
    ("token_mean", [[1 / 7, 0, 1 / 7], [1 / 7, 0, 0]], (1 + 2 + 5) / 7),
    ("sequence_mean", [[1 / 8, 0, 1 / 8], [1 / 4, 0, 0]], (1.5 + 5) / 4),
    ("constant_length", [[1 / 16, 0, 1 / 16], [1 / 16, 0, 0]], (1 + 2 + 5) / (4 * 4)),
)
def test_an_aggregation_weighs_tokens_or_responses(aggregation, weights, loss):
    advantages = -torch.tensor([[1.0, 9.0, 2.0], [5.0, 0.0, 0.0]])
    mask = torch.tensor([[True, False, True], [True, False, False]])
    logprobs = torch.zeros(2, 3, requires_grad=True)
    step = totals(7, 4, longest=4)
    found = surrogate(logprobs, advantages, mask, step, loss_aggregation=aggregation)
    assert found.loss.item() == pytest.approx(loss)
    found.loss.backward()
    torch.testing.assert_close(logprobs.grad, -advantages * torch.tensor(weights))


@pytest.mark.parametrize("correction", get_args(Correction))
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_the_loss_is_openrlhfs(correction, aggregation):
    generator = torch.Generator().manual_seed(0)
    logprobs, old, advantages, rollout = torch.randn(4, 3, 5, generator=generator).unbind()
    mask = mask_of(5, 2, 3)
    level, mode, bounds = case_file("policy_optimization")["OPENRLHFS"][correction]
    theirs = openrlhf_module("loss").PolicyLoss(
        clip_eps_low=0.2,
        clip_eps_high=0.3,
        token_level_loss=aggregation == "token_mean",
        is_correction_level=level,
        is_correction_mode=mode,
        is_correction_threshold=bounds,
    )
    of_step = {"dp_size": 2, "batch_num_tokens": 10, "global_batch_size": 3}
    of_step |= {"action_mask": mask.float(), "rollout_log_probs": rollout}
    expected, *_ = theirs(logprobs, old, advantages, **of_step)
    settings = {"loss_aggregation": aggregation, "rollout_correction": correction}
    settings |= {"clip_epsilon_high": 0.3, "old": old, "rollout": rollout}
    found = surrogate(logprobs, advantages, mask, totals(10, 3, 2), **settings)
    assert found.loss.item() == expected.item()


@cases("aggregation, share", ("token_mean", 1 / 3), ("sequence_mean", 1 / 2))
def test_the_kl_penalty_is_averaged_like_the_loss_and_pulls_to_the_reference(aggregation, share):
    policy = torch.tensor([[-1.0, -3.0], [-1.0, -1.0]], requires_grad=True)
    reference = torch.tensor([[-2.0, -9.0], [-1.0, -1.0]])
    mask, zeros = torch.tensor([[True, False], [True, True]]), torch.zeros(2, 2)
    targets = losses.Targets(mask, zeros, zeros, None, reference, zeros)
    algorithm = Grpo(kl_coef=0.5, loss_aggregation=aggregation)
    found = losses.policy_loss(policy, targets=targets, totals=totals(3, 2), algorithm=algorithm)
    assert found.loss.item() == pytest.approx(0.5 * math.exp(-1) * share)  # k3(1) = exp(-1)
    found.loss.backward()
    # d k3 / d lp = 1 - exp(ref - lp) = 1 - exp(-1) > 0: descending lowers lp towards ref.
    pull = torch.tensor([[0.5 * (1 - math.exp(-1)) * share, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(policy.grad, pull)


def test_without_old_log_probs_the_ratio_is_1_and_has_a_gradient():
    policy, zeros = torch.tensor([[-1.0]], requires_grad=True), torch.zeros(1, 1)
    targets = losses.Targets(mask_of(1), zeros + 2, None, None, None, zeros)
    found = losses.policy_loss(policy, targets=targets, totals=totals(1), algorithm=ReinforcePP())
    found.loss.backward()
    assert (found.loss.item(), policy.grad.item()) == (-2, -2)


ALGORITHMS = {"reinforce_pp": ReinforcePP, "grpo": Grpo, "custom": Custom, "dpo": Dpo}


@cases("name, settings, num_steps, wanted")
def test_a_pass_beforehand_is_made_where_it_is_needed(name, settings, num_steps, wanted):
    algorithm = ALGORITHMS[name](**settings)
    assert losses.needs_pass_beforehand(algorithm, num_optimizer_steps=num_steps) is wanted


@cases("name, settings, idle")
def test_only_samples_without_a_gradient_are_idle(name, settings, idle):
    advantages = torch.tensor([[0.0, 0.0], [0.5, -0.5], [0.0, 1.0]])
    reference = advantages if settings.get("kl_coef") else None
    targets = losses.Targets(mask_of(2, 2, 2), advantages, None, None, reference, advantages)
    algorithm = ALGORITHMS[name](**settings)
    assert losses.idle_samples([2, 1, 0], targets=targets, algorithm=algorithm) == idle


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("num_tokens", [0, 1, 7, 8, 9, 20])
def test_chunks_of_logits_give_the_numbers_of_all_at_once(monkeypatch, num_tokens, each):
    monkeypatch.setattr(logprobs, "CHUNK_SIZE", 8)
    monkeypatch.setattr(logprobs, "PIECE_SIZE", 3)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(num_tokens, 5, generator=generator).requires_grad_()
    weight = torch.randn(11, 5, generator=generator).requires_grad_()
    token_ids = torch.randint(11, (num_tokens,), generator=generator)
    upstream = torch.randn(num_tokens, generator=generator)
    temperatures = torch.linspace(0.5, 2.0, num_tokens) if each else torch.full((num_tokens,), 0.7)
    all_logprobs = (hidden @ weight.T / temperatures[:, None]).log_softmax(-1)
    expected = all_logprobs[range(num_tokens), token_ids]
    found, entropies = token_logprobs(hidden, weight, token_ids, temperature=temperatures)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    of_all = -(all_logprobs.exp() * all_logprobs).sum(dim=1).detach()
    torch.testing.assert_close(entropies, of_all, rtol=0, atol=1e-5)
    assert not entropies.requires_grad
    ours, plain = (torch.autograd.grad(x, (hidden, weight), upstream) for x in (found, expected))
    torch.testing.assert_close(ours, plain, rtol=1e-6, atol=1e-6)
    weight.requires_grad_(False)  # as under LoRA
    found, _ = token_logprobs(hidden, weight, token_ids, temperature=temperatures)
    assert torch.equal(*torch.autograd.grad(found, hidden, upstream), ours[0])


def test_bfloat16_logits_give_float32_logprobs():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(4, 6, generator=generator).bfloat16()
    weight = torch.randn(9, 6, generator=generator).bfloat16().requires_grad_()
    token_ids = torch.tensor([0, 3, 8, 5])
    expected = (hidden @ weight.T).float().log_softmax(-1)[range(4), token_ids]
    found, entropies = token_logprobs(hidden, weight, token_ids, temperature=torch.ones(4))
    assert found.dtype == entropies.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found.sum(), weight)
    assert gradient.dtype == torch.bfloat16


@cases("num_samples, train_batch_size, steps")
def test_optimiser_steps_have_about_the_train_batch_size(num_samples, train_batch_size, steps):
    assert batching.num_optimizer_steps(num_samples, train_batch_size) == steps


@settings(max_examples=50)
@given(st.integers(0, 200), st.none() | st.integers(1, 70), st.sampled_from([1, 2]))
@example(5, 4, 2)  # 2.5 pairs a step: 3 steps
def test_steps_hold_every_sample_or_pair_once_and_differ_by_one_at_most(num, size, unit):
    split = partial(batching.split_into_steps, rng=Random(0), unit=unit)
    steps = split(num * unit, train_batch_size=size)
    assert sorted(i for step in steps for i in step) == list(range(num * unit))
    units = [step[k : k + unit] for step in steps for k in range(0, len(step), unit)]
    assert all(one == list(range(one[0], one[0] + unit)) and one[0] % unit == 0 for one in units)
    lengths = {len(step) for step in steps}
    assert not lengths or (max(lengths) - min(lengths) <= unit and min(lengths) > 0)
    assert (num, size, unit) != (5, 4, 2) or len(steps) == 3
    assert num < 30 or [i for step in steps for i in step] != list(range(num * unit))


@cases("lengths, limit, ranks, shares")
def test_as_few_micro_batches_as_hold_samples_cost_ranks_alike(lengths, limit, ranks, shares):
    found = balancing.split_into_micro_batches(lengths, micro_batch_tokens=limit, num_ranks=ranks)
    assert found == shares


@pytest.mark.parametrize("split", [balancing.split_into_micro_batches, balancing.split_into_rows])
@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 60), st.integers(1, 4))
def test_ranks_share_all_samples_in_equally_many_micro_batches(split, lengths, limit, ranks):
    shares = split(lengths, micro_batch_tokens=limit, num_ranks=ranks)
    batches = [[lengths[i] for i in batch] for share in shares for batch in share]
    assert sorted(i for share in shares for batch in share for i in batch) == [*range(len(lengths))]
    assert len({len(share) for share in shares}) == 1
    assert len(shares[0]) <= -(-len(lengths) // ranks)
    pads = split is balancing.split_into_rows
    sizes = [len(batch) * max(batch, default=0) if pads else sum(batch) for batch in batches]
    assert all(size <= limit or len(b) == 1 for size, b in zip(sizes, batches, strict=True))


A, B = (1, 2, 3, 4), (1, 2, 3, 5)


@cases(  # prompts with the lengths of responses
    "answers, unit, limit, share, groups",
    # (10 - 4) // 3 = 2 samples behind A: 4 + 1 + 3 and 4 + 2 tokens.
    ([(A, 1), (B, 2), (A, 3), (A, 2)], 1, 10, True, {(0, 2): 8, (3,): 6, (1,): 6}),
    ([(A, 1), (B, 2), (A, 3), (A, 2)], 1, 10, False, {(0,): 5, (1,): 6, (2,): 7, (3,): 6}),
    # More than the limit alone, and at most 8 behind a prompt.
    ([(A, 9), (A, 1)], 1, 10, True, {(0,): 13, (1,): 5}),
    ([(A, 1)] * 10, 1, 99, True, {(0, 1, 2, 3, 4, 5, 6, 7): 12, (8, 9): 6}),
    # Pairs are never parted; two of them would have 4 + 2 + 1 + 2 + 1 = 10 tokens, or up to 12.
    ([(A, 2), (A, 1), (A, 2), (A, 1)], 2, 11, True, {(0, 1): 7, (2, 3): 7}),
    ([(A, 2), (A, 1), (A, 2), (A, 1)], 2, 12, True, {(0, 1, 2, 3): 10}),
    ([(A, 2), (A, 1), (B, 2), (B, 1)], 2, 1, False, {(0, 1): 11, (2, 3): 11}),
)
def test_samples_of_a_prompt_are_a_group(answers, unit, limit, share, groups):
    samples = [sample(prompt_token_ids=prompt, response=length) for prompt, length in answers]
    found = balancing.group_samples(samples, unit=unit, limit=limit, share_prompts=share)
    assert list(found.items()) == list(groups.items())


def test_samples_of_a_prompt_lie_behind_one_copy_of_it():
    tokens = ((5, 8), (7, 9, 1)), ((5,), (3,)), ((5, 8), (6,))
    samples = [sample(prompt_token_ids=p, response_token_ids=r) for p, r in tokens]
    batch = batching.assemble(samples, device=torch.device("cpu"), share_prompts=True)
    # The shared prompt, the first response, the second sample, the third response.
    assert batch.input_ids.tolist() == [[5, 8, 7, 9, 1, 5, 3, 6]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2]]
    assert (batch.boundaries.tolist(), batch.longest) == ([0, 2, 5, 7, 8], 3)
    assert batch.key_places.tolist() == [0, 1, 0, 1, 2, 3, 4, 5, 6, 0, 1, 7]
    assert (batch.key_boundaries.tolist(), batch.most_keys) == ([0, 2, 7, 9, 12], 5)
    assert batch.predicting.tolist() == [1, 2, 3, 5, 1]
    assert batch.response_ids.tolist() == [7, 9, 1, 3, 6]
    assert batch.mask.int().tolist() == [[1, 1, 1], [1, 0, 0], [1, 0, 0]]


LEARNING_RATE = 1e-6


class Run:
    """An optimiser with its schedule; ``rates`` are shares of the learning rate."""

    def __init__(self, *, num_steps: int | None = None, **settings: object) -> None:
        optimization = Optimization(learning_rate=LEARNING_RATE, **settings)  # type: ignore[arg-type]
        self._optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], LEARNING_RATE)
        self.schedule = create_schedule(self._optimizer, optimization, num_steps=num_steps)

    def rates(self, count: int) -> list[float]:
        """The rates of the next ``count`` optimiser steps."""
        found = []
        for _ in range(count):
            found.append(self._optimizer.param_groups[0]["lr"] / LEARNING_RATE)
            self._optimizer.step()
            self.schedule.step()
        return found


def test_rates_are_warmed_up_and_stay_or_fall_by_equal_parts():
    expected = [1 / 4, 2 / 4, 3 / 4, 1, 1, 1]
    assert Run(warmup_steps=4).rates(6) == pytest.approx(expected)
    assert Run(warmup_steps=4, num_steps=6).rates(6) == pytest.approx(expected)
    assert Run(warmup_steps=0).rates(2) == [1, 1]
    settings = {"lr_schedule": "linear", "num_steps": 8}
    expected = [1 / 4, 2 / 4, 3 / 4, 1, *[0.1 + 0.9 * k / 5 for k in (4, 3, 2, 1, 0)], 0.1, 0.1]
    assert Run(**settings, warmup_steps=4).rates(11) == pytest.approx(expected)
    expected = [0.1 + 0.9 * k / 8 for k in (8, 7, 6, 5, 4, 3, 2, 1, 0, 0)]
    assert Run(**settings, warmup_steps=0).rates(10) == pytest.approx(expected)


def test_cosine_falls_along_half_a_wave_to_its_share():
    # Two steps of warm-up, then (1 + cos(k pi / 4)) / 2 for k = 1, 2, 3: of what is above 0.1.
    run = Run(lr_schedule="cosine", warmup_steps=2, num_steps=5)
    falls = [0.1 + 0.9 * (1 + cosine) / 2 for cosine in (sqrt(1 / 2), 0, -sqrt(1 / 2))]
    assert run.rates(7) == pytest.approx([1 / 2, 1, *falls, 0.1, 0.1])


@pytest.mark.parametrize("lr_schedule", ["cosine", "linear"])
def test_a_rate_that_has_fallen_never_rises_again(lr_schedule):
    # 744 steps instead of the expected 125, where a plain cosine would rise to 1 again.
    rates = Run(lr_schedule=lr_schedule, warmup_steps=4, num_steps=125).rates(744)
    assert rates[3] == 1
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert rates[125:] == pytest.approx([0.1] * 619)
