"""The arithmetic of the paper's run: each part by hand."""

from __future__ import annotations

import pytest
from small_runs import REPOSITORY

from comas.config.schema import Config
from comas.preflight.configuration import load_config
from comas.preflight.hours import (
    Assumptions,
    body_weights,
    decode_step_seconds,
    hours,
    hours_interval,
    one_step,
    prompt_tokens,
    response_tokens,
    rollout_seconds,
    sequences_in_flight,
    state_bytes,
    transfer_seconds,
    update_seconds,
)
from comas.preflight.sizes import derive_sizes
from comas.run.prepared import Sizes
from scripts.benchmarks.estimate import QWEN_3B

GIVEN = Assumptions()


def paper(name: str = "comas") -> tuple[Config, Sizes]:
    config = load_config(REPOSITORY / f"configs/{name}.yaml", [])
    return config, derive_sizes(config, num_questions=2000)


def test_prompts_hold_the_history_of_the_horizon():
    # Over 8 rounds (0 + 1 + 6 x 2) / 8 = 1.625 past rounds of 600 + 400 tokens; with 200 + 300
    # for question and template: solver 2125, evaluator 2725, scorer 500 + 1000.
    assert prompt_tokens(paper()[0], GIVEN) == pytest.approx((2125 + 2725 + 1500) / 3)
    assert response_tokens(GIVEN) == pytest.approx(1250 / 3)


def test_an_evaluator_of_the_parallel_schedule_reads_no_history():
    config = paper()[0]
    config.interaction.schedule = "parallel"
    assert prompt_tokens(config, GIVEN) == pytest.approx((2125 + 1100 + 1500) / 3)


def test_a_decoding_step_reads_weights_and_cache_once():
    # 6.17 GB, and 39 x 2000 x 2 x 36 x 256 x 2 bytes = 2.88 GB, at 1.4 TB/s; 3 ms beside.
    assert decode_step_seconds(39, 2000, QWEN_3B, GIVEN) == pytest.approx(
        9.05e9 / 1.4e12 + 3e-3, rel=1e-3
    )


def test_each_gpu_of_a_sharded_engine_reads_its_part():
    assert decode_step_seconds(39, 2000, QWEN_3B, GIVEN, shards=2) == pytest.approx(
        9.05e9 / 2 / 1.4e12 + 36 * 2 * 1e-5 + 3e-3, rel=1e-3
    )  # Every layer is summed up twice, in 10 us.


def test_a_rollout_is_the_slowest_chain_and_the_prompts():
    config, sizes = paper()
    # A chain of 8 x 1000 + 250 tokens; 24 x 416.7 tokens in 8250 are 1.21 in flight, of each of
    # 32 discussions on an engine.
    step = decode_step_seconds(32 * 10000 / 8250, 6350 / 3 + 1250 / 6, QWEN_3B, GIVEN)
    # 768 prompts of an engine, of which prefix caches hold a fifth.
    prefill = 2 * body_weights(QWEN_3B) * 768 * 6350 / 3 * 0.8 / 156e12
    assert rollout_seconds(config, sizes, QWEN_3B, GIVEN) == pytest.approx(
        8250 * step * 1.3 + prefill
    )


def test_more_sequences_than_an_engine_decodes_take_turns():
    config, sizes = paper("comas_lora")
    # 256 discussions on one engine, 10000 / 8250 of each in flight: 310, and room for 384.
    assert sequences_in_flight(config, sizes, GIVEN) == pytest.approx(256 * 10000 / 8250)
    assert config.rollout.max_num_seqs == 384
    context = 6350 / 3 + 1250 / 6
    prefill = 2 * body_weights(QWEN_3B) * 6144 * 6350 / 3 * 0.8 / 156e12
    step = decode_step_seconds(256 * 10000 / 8250, context, QWEN_3B, GIVEN)
    assert rollout_seconds(config, sizes, QWEN_3B, GIVEN) == pytest.approx(
        8250 * step * 1.3 + prefill
    )
    config.rollout.max_num_seqs = 155  # about half of them
    step = decode_step_seconds(155, context, QWEN_3B, GIVEN) * 256 * 10000 / 8250 / 155
    assert rollout_seconds(config, sizes, QWEN_3B, GIVEN) == pytest.approx(
        8250 * step * 1.3 + prefill
    )


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("comas", 8.2),  # a tenth of the tokens goes through the model once more
        ("comas_paper_memory", 10),
    ],
)
def test_an_update_costs_some_operations_for_each_weight_and_token(name, operations):
    config, sizes = paper(name)
    tokens = 1536 * 7600 / 3  # 3.9 million
    length = 7600 / 3
    weights = body_weights(QWEN_3B) + 36 * 2048 * length + 151936 * 2048 * (1250 / 3) / length
    expected = operations * weights * tokens / (2 * 312e12 * 0.55)
    assert update_seconds(config, sizes, QWEN_3B, GIVEN) == pytest.approx(expected)


def test_old_log_probs_of_the_rollout_save_a_pass():
    config, sizes = paper()
    before = update_seconds(config, sizes, QWEN_3B, GIVEN)
    config.optimization.old_logprobs = "rollout"
    assert update_seconds(config, sizes, QWEN_3B, GIVEN) / before == pytest.approx(6.2 / 8.2)
    config.optimization.kl_coef = 0.1  # in the advantages, and a reference model
    assert update_seconds(config, sizes, QWEN_3B, GIVEN) / before == pytest.approx(10.2 / 8.2)


@pytest.mark.parametrize(
    ("estimator", "train_batch_size", "kl_coef", "more"),
    [
        ("grpo", 64, 0.1, 2),  # the reference model's pass
        ("grpo", None, 0.0, -2),  # no pass before the only optimiser step
        ("grpo", None, 0.1, 0),
        ("reinforce_pp", None, 0.0, -2),
        ("reinforce_pp", None, 0.1, 2),  # its advantages hold the penalty
    ],
)
def test_a_reference_model_costs_a_pass_and_advantages_with_its_penalty_another(
    estimator, train_batch_size, kl_coef, more
):
    config = paper()[0]
    before = update_seconds(config, derive_sizes(config, num_questions=2000), QWEN_3B, GIVEN)
    config.optimization.estimator = estimator
    config.optimization.train_batch_size = train_batch_size
    config.optimization.kl_coef = kl_coef
    found = update_seconds(config, derive_sizes(config, num_questions=2000), QWEN_3B, GIVEN)
    assert found / before == pytest.approx((8.2 + more) / 8.2)


def test_adapters_of_one_base_are_updated_one_after_another_without_its_gradients():
    config, sizes = paper("comas_lora")
    length, head = 7600 / 3, 151936 * 2048 * (1250 / 3) / (7600 / 3)
    adapter = 32 * 36 * (4 * 2048 + 2 * 2304 + 3 * 13056)  # 60 million
    attention = 36 * 2048 * length
    # 8.2 for each weight as of whole models, of which 2 are the gradient.
    per_token = 6.2 * (body_weights(QWEN_3B) + head) + 8.2 * (attention + adapter)
    expected = per_token * 4 * 1536 * length / (312e12 * 0.55)  # one rank for four policies
    assert update_seconds(config, sizes, QWEN_3B, GIVEN) == pytest.approx(expected)
    # The engine's base model leaves the GPU, and nothing of the trainer's.
    assert state_bytes(config, QWEN_3B) == 2 * 3_085_938_688
    step = one_step(config, sizes, QWEN_3B, GIVEN)
    between = 2 * 8 * 45 + 4 * 4 * 14 * adapter / 2e9
    found = hours(step, config, sizes, QWEN_3B, GIVEN)
    assert found == pytest.approx((31 * step.seconds + between) / 3600, rel=1e-4)


def test_offloading_moves_all_gradients_in_every_micro_batch():
    config, sizes = paper("comas_paper_memory")
    # 1536 / 2 ranks / 2 samples = 384 micro batches: 12.3 GB over PCIe, 6.2 GB over NVLink; and
    # 24 times 1.54e9 parameters on the host.
    expected = 384 * (12.344 / 25 + 6.172 / 250) + 24 * 1.543 / 0.8
    assert transfer_seconds(config, sizes, QWEN_3B, GIVEN) == pytest.approx(expected, rel=1e-3)
    assert state_bytes(paper()[0], QWEN_3B) == 3_085_938_688 * (2 + 12 / 2)


def test_between_nodes_gradients_cross_and_under_zero_3_weights_as_well():
    config, sizes = paper("comas_paper_memory")
    on_one = transfer_seconds(config, sizes, QWEN_3B, GIVEN)
    config.cluster.nodes_per_policy = 2
    # Half of 6.17 GB of weights, twice, and of as many bytes of gradients, at 25 GB/s; 384 times.
    crossing = 6.172 / 2 / 25
    on_two = transfer_seconds(config, sizes, QWEN_3B, GIVEN)
    assert on_two - on_one == pytest.approx(384 * 3 * crossing, rel=1e-3)
    config.policy.zero_stage, config.policy.adam_offload = 2, False
    of_gradients = transfer_seconds(config, sizes, QWEN_3B, GIVEN)
    assert of_gradients == pytest.approx(384 * crossing, rel=1e-3)
    config.policy.zero_stage = 0
    per_optimizer_step = transfer_seconds(config, sizes, QWEN_3B, GIVEN)
    steps = sizes.optimizer_steps_per_policy[0]
    assert per_optimizer_step == pytest.approx(steps * 2 * crossing, rel=1e-3)


def test_the_run_has_31_steps_and_what_lies_between_them():
    config, sizes = paper()
    step = one_step(config, sizes, QWEN_3B, GIVEN)
    assert step.transfers == 0
    # 8 validations of 45 s, sampled and greedy; 4 checkpoints of 4 x 14 x 3.09e9 bytes at 2 GB/s.
    between = 2 * 8 * 45 + 4 * 4 * 14 * 3.0859 / 2
    found = hours(step, config, sizes, QWEN_3B, GIVEN)
    assert found == pytest.approx((31 * step.seconds + between) / 3600, rel=1e-4)
    with_offload = one_step(*paper("comas_paper_memory"), QWEN_3B, GIVEN)
    assert with_offload.seconds - step.seconds > 200


def test_hours_are_an_interval_over_what_is_known_least():
    config, sizes = paper()
    least, most = hours_interval(config, sizes, QWEN_3B, GIVEN)
    best = one_step(config, sizes, QWEN_3B, GIVEN)
    # Of a rollout, the decoding of 8,250 tokens is what the slowest discussion draws out.
    decoding = 8250 * decode_step_seconds(32 * 10000 / 8250, 6350 / 3 + 1250 / 6, QWEN_3B, GIVEN)
    slower = best.rollout + (1.8 - 1.3) * decoding
    step = slower + best.update * 0.55 / 0.35 + best.phases
    assert least == hours(best, config, sizes, QWEN_3B, GIVEN)
    assert most - least == pytest.approx(31 * (step - best.seconds) / 3600)
    assert (round(least, 1), round(most, 1)) == (4.1, 5.8)
