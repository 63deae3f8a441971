"""Policies as LoRA adapters: several over one base model, each with its own optimiser."""

import os
import pickle

os.environ["DS_ACCELERATOR"] = "cpu"

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from tables import cases
from test_policy_engine import (
    OPTIMIZATION,
    POLICY,
    REINFORCE_PP,
    ROLLOUT,
    Weights,
    largest_difference,
    load_plain,
    logprobs_of,
    make_samples,
    plain_logprobs,
    plain_updates,
)
from tiny_models import save_tiny_model

from comas.config.schema import Config, Lora, ReinforcePP
from comas.engines.policy.family import FamilyTrainer

pytestmark = pytest.mark.stack

LORA = Lora(rank=3, alpha=12)
STEPS = replace(OPTIMIZATION, train_batch_size=6, learning_rate=1e-3)
BUFFERS = {policy: make_samples(11, seed=policy) for policy in (0, 1)}
states = cases("zero_stage, dtype", (0, "float32"), (2, "float32"), (2, "bfloat16"))


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters") / "qwen2"
    save_tiny_model(folder, "tied", num_key_value_heads=1)
    # Trap: DeepSpeed makes no second group in a process; test_policy_engine.py has the same one.
    return folder


def make_family(model, *, policies=(0, 1), lora=LORA, algorithm=REINFORCE_PP, **changes):
    config = Config(
        policy=replace(POLICY, lora=lora, **changes),
        algorithm=algorithm,
        optimization=STEPS,
        rollout=ROLLOUT,
    )
    return FamilyTrainer(
        str(model),
        config,
        policies=policies,
        num_optimizer_steps=[None, None],
        device="cpu",
        rank=0,
        rendezvous=model.parent / "rendezvous",
    )


def assert_same_adapters(one: FamilyTrainer, other: FamilyTrainer) -> None:
    for policy in (0, 1):
        assert largest_difference(one.adapter(policy), other.adapter(policy)) == 0


@pytest.mark.parametrize("zero_stage", [0, 1, 2])
def test_adapters_of_one_base_train_as_adapters_of_bases_of_their_own(qwen2, tmp_path, zero_stage):
    family = make_family(qwen2, zero_stage=zero_stage)
    before = {policy: family.adapter(policy) for policy in (0, 1)}
    for policy in (0, 1):
        family.save_model(policy, tmp_path / str(policy))
    # Twice and in turns, so that the optimisers' states count too.
    for step in (0, 1):
        stats = family.update(BUFFERS, step=step)
    for policy in (0, 1):
        saved, base = tmp_path / str(policy), load_plain(qwen2)
        alone = PeftModel.from_pretrained(base, saved, is_trainable=True)
        plain_updates(alone, BUFFERS[policy], STEPS, num_updates=2)
        expected: Weights = {
            name.replace(".default", ""): weight.detach()
            for name, weight in alone.named_parameters()
            if weight.requires_grad
        }
        assert largest_difference(family.adapter(policy), expected) < 2e-5
        assert largest_difference(family.adapter(policy), before[policy]) > 1e-3
        assert stats[policy].num_optimizer_steps == 2
        assert (saved / "tokenizer.json").is_file()


@pytest.mark.parametrize("zero_stage", [0, 2])
def test_only_the_adapter_whose_buffer_is_trained_moves(qwen2, zero_stage):
    family, reverse = (make_family(qwen2, zero_stage=zero_stage) for _ in range(2))
    model = family.trainers[0]._language_model
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    family.update({1: BUFFERS[1]}, step=0)
    moved = {n for n, weight in model.named_parameters() if not torch.equal(weight, before[n])}
    assert moved and all(".policy_1." in name for name in moved)
    # In the other order nothing differs: no gradient is left over.
    family.update({0: BUFFERS[0]}, step=0)
    for policy in (0, 1):
        reverse.update({policy: BUFFERS[policy]}, step=0)
    assert_same_adapters(family, reverse)


def test_the_reference_is_the_base_model_without_adapters(qwen2):
    family = make_family(qwen2, algorithm=ReinforcePP(kl_coef=0.1))
    first = family.update(BUFFERS, step=0)
    assert first[0].kl == first[1].kl == 0.0
    [whole] = make_family(qwen2, lora=Lora(), policies=(1,)).trainers.values()
    reference = torch.cat(logprobs_of(whole, BUFFERS[1]))
    moved = torch.cat(logprobs_of(family.trainers[1], BUFFERS[1])) - reference  # 1 is active
    second = family.update({1: BUFFERS[1]}, step=1)
    assert second[1].kl == pytest.approx(moved.mean().item(), abs=1e-6) != 0.0


@states
def test_a_resumed_family_equals_an_uninterrupted_one(qwen2, tmp_path, zero_stage, dtype):
    whole, resumed = (make_family(qwen2, zero_stage=zero_stage, dtype=dtype) for _ in range(2))
    whole.update(BUFFERS, step=0)
    whole.save_checkpoint(tmp_path)
    [file] = tmp_path.glob("policy_1/policy/*model_states.pt")
    saved = torch.load(file, weights_only=False)["module"]
    assert saved and all(name.endswith(".policy_1.weight") for name in saved)  # nothing else
    whole.update(BUFFERS, step=1)
    resumed.load_checkpoint(tmp_path)
    resumed.update(BUFFERS, step=1)
    assert_same_adapters(whole, resumed)


@states
def test_an_adapter_that_is_sent_holds_itself_alone(qwen2, zero_stage, dtype):
    """Its weights may be parts of one tensor of DeepSpeed's, which each would take along."""
    weights = make_family(qwen2, zero_stage=zero_stage, dtype=dtype).adapter(1)
    size = sum(weight.numel() * weight.element_size() for weight in weights.values())
    assert sum(len(pickle.dumps(weight)) - 2048 for weight in weights.values()) < size


def test_a_saved_adapter_opens_in_peft_as_the_trained_one(qwen2, tmp_path):
    family = make_family(qwen2)
    family.update(BUFFERS, step=0)
    family.save_model(1, tmp_path)
    opened = PeftModel.from_pretrained(load_plain(qwen2), tmp_path)
    with torch.no_grad():
        expected = plain_logprobs(opened, BUFFERS[1][0])
    [logprobs] = logprobs_of(family.trainers[1], BUFFERS[1][:1])
    assert torch.allclose(logprobs, expected, atol=1e-5)
