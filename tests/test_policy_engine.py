"""The policy engine on tiny models: DeepSpeed in this process for one rank, in two for two.

Run as a script, this file is one rank of ``run_rank``.
"""

from __future__ import annotations

import os

os.environ["DS_ACCELERATOR"] = "cpu"

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from random import Random
from typing import Any

import deepspeed
import pytest
import torch
from deepspeed.runtime.zero.offload_states import offload_adam_states
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import distributed
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BloomConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    PhiConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from comas.config.schema import (
    Algorithm,
    Custom,
    Dpo,
    Grpo,
    Optimization,
    Policy,
    PolicyGradient,
    ReinforcePP,
)
from comas.engines import LOOPBACK_GROUPS
from comas.engines.policy import engine as engine_module
from comas.engines.policy import trainer as trainer_module
from comas.engines.policy.architecture import check_trainable
from comas.engines.policy.deepspeed_options import (
    deepspeed_config,
    forget_host_buffers,
    process_environment,
)
from comas.engines.policy.trainer import PolicyTrainer
from comas.engines.policy.weights import (
    Shard,
    check_loaded_weights,
    chunked,
    named_weights,
    weight_shards,
)
from comas.policy_optimization.advantages import compute_advantages
from comas.policy_optimization.batching import response_mask, split_into_steps
from comas.types import TrainingSample, UpdateStats

pytestmark = pytest.mark.stack

VOCABULARY = 128
ZERO_STAGES = [0, 1, 2, 3]
POLICY = Policy(
    ranks_per_policy=1,
    dtype="float32",
    zero_stage=2,
    adam_offload=False,
    gradient_checkpointing=False,
    micro_batch_tokens=80,
)
# Adam's first step is the learning rate times g / (|g| + 1e-8): where the gradient is as small
# as its rounding, so large a difference is rounding too. Tolerances of 1e-5 are 5 % of a step.
LEARNING_RATE = 2e-4
OPTIMIZATION = Optimization(learning_rate=LEARNING_RATE, warmup_steps=0, train_batch_size=None)
REINFORCE_PP = ReinforcePP()
DR_GRPO = Custom(estimator="comas.ideas.advantages:dr_grpo", loss_aggregation="constant_length")
ALGORITHMS: dict[str, PolicyGradient] = {
    "reinforce_pp": REINFORCE_PP,
    "grpo": Grpo(),
    "dr_grpo": DR_GRPO,
    "reinforce_pp_baseline": Custom(estimator="comas.ideas.advantages:reinforce_pp_baseline"),
}
CHAT_TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def save_tiny_models(folder: Path) -> None:
    """A tied Qwen2 and an untied Llama with distributions that are not flat."""
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 256,
        "initializer_range": 0.1,
    }
    torch.manual_seed(0)
    alphabet = {letter: i for i, letter in enumerate(pre_tokenizers.ByteLevel.alphabet()[:100])}
    text = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=text, chat_template=CHAT_TEMPLATE)
    built = {
        "qwen2": Qwen2ForCausalLM(Qwen2Config(tie_word_embeddings=True, **shape)),
        "llama": LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False, **shape)),
    }
    for name, model in built.items():
        model.generation_config.temperature = 0.7
        model.generation_config.do_sample = True
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


def make_samples(count: int = 11, *, seed: int = 0) -> list[TrainingSample]:
    """Ragged random samples in groups of 4, with rewards between 0 and 1."""
    rng = Random(seed)

    def tokens(shortest: int, longest: int) -> tuple[int, ...]:
        length = rng.randint(shortest, longest)
        return tuple(rng.randrange(VOCABULARY) for _ in range(length))

    samples = []
    for i in range(count):
        prompt, response = tokens(3, 20), tokens(1, 15)
        rollout = tuple(rng.uniform(-6, -4) for _ in response)
        samples.append(
            TrainingSample(
                0,
                f"q{i // 4}",
                "d",
                f"r0.s{i}",
                0,
                "solution",
                prompt,
                response,
                rollout,
                rng.random(),
            )
        )
    return samples


def shard_every_parameter(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """ZeRO-3 keeps small parameters whole; here that would be the whole model."""
    config = deepspeed_config(*args, **kwargs)
    config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    return config


def host_optimizer(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """As on a GPU with ``policy.adam_offload``."""
    config = shard_every_parameter(*args, **kwargs)
    config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    return config


def save_checkpoint(trainer: PolicyTrainer, folder: Path) -> None:
    trainer.copy_checkpoint(folder)
    trainer.write_checkpoint()


def make_trainer(
    model: Path,
    *,
    policy: Policy = POLICY,
    algorithm: Algorithm = REINFORCE_PP,
    optimization: Optimization = OPTIMIZATION,
    temperature: float = 1.0,
    rank: int = 0,
    rendezvous: Path | None = None,
    num_optimizer_steps: int | None = None,
) -> PolicyTrainer:
    return PolicyTrainer(
        str(model),
        policy=policy,
        algorithm=algorithm,
        optimization=optimization,
        temperature=temperature,
        max_response_tokens=15,
        device="cpu",
        rank=rank,
        world_size=policy.ranks_per_policy,
        rendezvous=rendezvous or model.parent / "rendezvous",
        seed=0,
        num_optimizer_steps=num_optimizer_steps,
    )


def weights_of(trainer: PolicyTrainer) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in trainer.named_weights()}


def updated_weights(
    model: Path, samples: Sequence[TrainingSample], **options: Any
) -> dict[str, torch.Tensor]:
    trainer = make_trainer(model, **options)
    trainer.update(samples, step=0)
    return weights_of(trainer)


def largest_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert list(one) == list(other)
    return max((one[name] - other[name]).abs().max().item() for name in one)


def plain_logprobs(model: torch.nn.Module, sample: TrainingSample, temperature: float = 1.0):
    """Response log-probs from one sample alone, the whole logits and PyTorch's log-softmax."""
    ids = torch.tensor([[*sample.prompt_token_ids, *sample.response_token_ids]])
    logits = model(input_ids=ids).logits[0, len(sample.prompt_token_ids) - 1 : -1]
    response = torch.tensor(sample.response_token_ids)[:, None]
    return (logits / temperature).log_softmax(-1).gather(1, response)[:, 0]


def plain_update(
    model_path: Path,
    samples: list[TrainingSample],
    settings: Optimization,
    algorithm: Any = REINFORCE_PP,
) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The weights after the same update in plain PyTorch, one sample at a time, without OpenRLHF or
    DeepSpeed, and the norms of its gradients."""
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    norms = plain_updates(model, samples, settings, algorithm, num_updates=1)
    return {name: weight.detach() for name, weight in model.named_parameters()}, norms


def plain_updates(
    model: torch.nn.Module,
    samples: list[TrainingSample],
    settings: Optimization,
    algorithm: Any = REINFORCE_PP,
    *,
    num_updates: int,
) -> list[float]:
    """So many updates of ``model`` on the same samples, at the steps 0, 1, ...; returns the norm of
    each gradient before clipping."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(
        trained, lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
    )
    mask = response_mask(samples)
    advantages = compute_advantages(
        samples,
        mask=mask,
        log_ratios=torch.zeros(mask.shape),
        algorithm=algorithm,
        memory={},
    )
    of_constant_length = algorithm is DR_GRPO
    norms = []
    for step in range(num_updates):
        with torch.no_grad():
            old = [plain_logprobs(model, sample) for sample in samples]
        for indices in split_into_steps(
            len(samples), train_batch_size=settings.train_batch_size, rng=Random(f"0/{step}/0")
        ):
            num_tokens = sum(len(samples[i].response_token_ids) for i in indices)
            for i in indices:
                ratio = (plain_logprobs(model, samples[i]) - old[i]).exp()
                advantage = advantages[i, : len(ratio)]
                gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
                (-gain.sum() / (15 * len(indices) if of_constant_length else num_tokens)).backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
            norms.append(norm.item())
            optimizer.step()
            optimizer.zero_grad()
    return norms


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy")
    save_tiny_models(path)
    # Trap: DeepSpeed makes no second group in a process; test_adapters.py has the same one.
    return path


@pytest.fixture
def qwen2(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(engine_module, "deepspeed_config", shard_every_parameter)
    return folder / "qwen2"


@pytest.fixture(params=["qwen2", "llama"])
def model(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(engine_module, "deepspeed_config", shard_every_parameter)
    return folder / request.param


# ---- The update ----


@pytest.mark.parametrize(
    ("zero_stage", "gradient_checkpointing", "estimator"),
    [
        *product(ZERO_STAGES, [False, True], ["reinforce_pp"]),
        (2, False, "grpo"),
        (2, False, "dr_grpo"),
    ],
)
def test_two_optimiser_steps_equal_plain_pytorch(
    model, zero_stage, gradient_checkpointing, estimator
):
    settings, algorithm = replace(OPTIMIZATION, train_batch_size=6), ALGORITHMS[estimator]
    policy = replace(
        POLICY,
        zero_stage=zero_stage,
        micro_batch_tokens=40,
        gradient_checkpointing=gradient_checkpointing,
    )
    found = updated_weights(
        model, make_samples(), policy=policy, optimization=settings, algorithm=algorithm
    )
    expected, _ = plain_update(model, make_samples(), settings, algorithm)
    assert largest_difference(found, expected) < 1e-5


@pytest.mark.parametrize("zero_stage", ZERO_STAGES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_norm_is_that_before_clipping(qwen2, zero_stage, dtype):
    samples, settings = make_samples(), replace(OPTIMIZATION, max_grad_norm=0.01)
    policy = replace(POLICY, zero_stage=zero_stage, dtype=dtype)
    stats = make_trainer(qwen2, policy=policy, optimization=settings).update(samples, step=0)
    _, [norm] = plain_update(qwen2, samples, settings)
    assert norm > 0.01
    assert stats.gradient_norm == pytest.approx(norm, rel=1e-5 if dtype == "float32" else 0.05)


@pytest.mark.parametrize(
    "split",
    [
        {"micro_batch_tokens": 60},
        {"micro_batch_tokens": 1},
        {"gradient_checkpointing": True},
        # Half of the samples are longer.
        {"gradient_checkpointing": None, "micro_batch_tokens": 18},
    ],
    ids=str,
)
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_the_update_does_not_depend_on_micro_batches(qwen2, split, aggregation):
    samples = make_samples()
    algorithm = ReinforcePP(loss_aggregation=aggregation)
    whole = updated_weights(
        qwen2, samples, policy=replace(POLICY, micro_batch_tokens=1000), algorithm=algorithm
    )
    parts = updated_weights(qwen2, samples, policy=replace(POLICY, **split), algorithm=algorithm)
    assert largest_difference(whole, parts) < 1e-5


def test_only_what_is_over_the_budget_is_computed_twice(qwen2):
    policy = replace(POLICY, gradient_checkpointing=None, micro_batch_tokens=18)
    trainer, seen = make_trainer(qwen2, policy=policy), []

    def look(_: Any, args: tuple[Any, ...]) -> None:
        if torch.is_grad_enabled():
            layers = trainer._language_model.is_gradient_checkpointing
            seen.append((args[0].input_ids.numel(), layers))

    trainer._engine.module.register_forward_pre_hook(look)
    samples = make_samples()
    trainer.update(samples, step=0)
    assert {length > 18 for length, _ in seen} == {True, False}
    assert all(checkpointed == (length > 18) for length, checkpointed in seen)


@pytest.mark.parametrize(
    "changes", [{"loss_aggregation": "sequence_mean"}, {"rollout_correction": "ratio"}], ids=str
)
def test_a_setting_of_the_loss_changes_the_update(qwen2, changes):
    other = updated_weights(qwen2, make_samples(), algorithm=ReinforcePP(**changes))
    assert largest_difference(updated_weights(qwen2, make_samples()), other) > 1e-4


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_a_rewarded_response_becomes_likelier_and_the_others_less(model, zero_stage):
    samples = [replace(s, reward=float(i == 2)) for i, s in enumerate(make_samples())]
    trainer = make_trainer(model, policy=replace(POLICY, zero_stage=zero_stage))
    before = [row.mean().item() for row in trainer.response_logprobs(samples)]
    trainer.update(samples, step=0)
    after = [row.mean().item() for row in trainer.response_logprobs(samples)]
    assert after[2] > before[2]
    others = [i for i in range(len(samples)) if i != 2]
    assert sum(after[i] for i in others) < sum(before[i] for i in others)


@pytest.mark.parametrize("zero_stage", ZERO_STAGES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("estimator", ["reinforce_pp", "grpo"])
def test_equal_rewards_give_no_gradient(qwen2, zero_stage, dtype, estimator):
    samples = [replace(s, reward=0.1) for s in make_samples()]
    trainer = make_trainer(
        qwen2,
        policy=replace(POLICY, zero_stage=zero_stage, dtype=dtype),
        algorithm=ALGORITHMS[estimator],
    )
    stats = trainer.update(samples, step=0)
    assert stats.gradient_norm < 1e-6
    lengths = [len(s.response_token_ids) for s in samples]
    assert stats.num_tokens == sum(lengths)
    assert [len(of_sample) for of_sample in stats.advantages] == lengths
    assert not any(map(any, stats.advantages))


@pytest.mark.parametrize("loss", ["policy", "dpo"])
@pytest.mark.parametrize("zero_stage", ZERO_STAGES)
def test_an_empty_buffer_and_one_without_a_pair_change_nothing(qwen2, zero_stage, loss):
    algorithm, samples = (REINFORCE_PP, []) if loss == "policy" else (Dpo(), make_candidates())
    trainer = make_trainer(
        qwen2, policy=replace(POLICY, zero_stage=zero_stage), algorithm=algorithm
    )
    before = weights_of(trainer)
    stats = trainer.update([replace(s, reward=0.5) for s in samples], step=0)
    # What is no mean over nothing: the learning rate, and the ratios of policies that agree.
    others = {"learning_rate": LEARNING_RATE, "rollout_ratio_mean": 1.0, "rollout_ratio_max": 1.0}
    others |= {"advantages": ()}
    assert vars(stats) == dict.fromkeys(vars(stats), 0) | others
    assert largest_difference(before, weights_of(trainer)) == 0


@pytest.mark.parametrize("zero_stage", ZERO_STAGES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_gradient_that_is_not_finite_is_skipped_and_leaves_no_trace(qwen2, zero_stage, dtype):
    samples = make_samples()
    broken = [*samples[:3], replace(samples[3], reward=float("nan")), *samples[4:]]
    policy = replace(POLICY, zero_stage=zero_stage, dtype=dtype)
    trainer = make_trainer(qwen2, policy=policy)
    before = weights_of(trainer)
    stats = trainer.update(broken, step=0)
    assert (stats.num_optimizer_steps, stats.num_skipped_steps) == (0, 1)
    assert largest_difference(before, weights_of(trainer)) == 0
    stats = trainer.update(samples, step=1)
    assert (stats.num_optimizer_steps, stats.num_skipped_steps) == (1, 0)
    untroubled = make_trainer(qwen2, policy=policy)
    same = untroubled.update(samples, step=1)
    assert same == stats
    assert largest_difference(weights_of(untroubled), weights_of(trainer)) == 0


@pytest.mark.parametrize("zero_stage", ZERO_STAGES)
def test_bfloat16_training_moves_with_float32(qwen2, zero_stage):
    policy, settings = (
        replace(POLICY, zero_stage=zero_stage),
        replace(OPTIMIZATION, learning_rate=2e-3),
    )
    plain = AutoModelForCausalLM.from_pretrained(qwen2)
    start = torch.cat([weight.detach().flatten() for weight in plain.parameters()])

    def movement(dtype: str) -> torch.Tensor:
        weights = updated_weights(
            qwen2, make_samples(), policy=replace(policy, dtype=dtype), optimization=settings
        )
        assert {str(weight.dtype) for weight in weights.values()} == {f"torch.{dtype}"}
        return torch.cat([weight.float().flatten() for weight in weights.values()]) - start

    exact, rounded = movement("float32"), movement("bfloat16")
    assert torch.nn.functional.cosine_similarity(exact, rounded, dim=0) > 0.8


def test_only_a_kl_coef_loads_a_reference_model(qwen2, monkeypatch):
    loaded = []
    load = engine_module.load_response_model
    monkeypatch.setattr(
        engine_module,
        "load_response_model",
        lambda *args, **kwargs: loaded.append(args) or load(*args, **kwargs),
    )
    make_trainer(qwen2)
    assert len(loaded) == 1
    make_trainer(qwen2, algorithm=ReinforcePP(kl_coef=0.1))
    assert len(loaded) == 3


def test_the_first_steps_warm_up_from_above_zero(qwen2):
    trainer = make_trainer(qwen2, optimization=replace(OPTIMIZATION, warmup_steps=4))
    rates = [trainer.update(make_samples(4), step=step).learning_rate for step in range(5)]
    assert [rate / LEARNING_RATE for rate in rates] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_epochs_multiply_the_optimiser_steps_and_later_ones_clip(qwen2):
    settings = replace(OPTIMIZATION, train_batch_size=6, epochs_per_buffer=3, learning_rate=1e-2)
    stats = make_trainer(qwen2, optimization=settings).update(make_samples(), step=0)
    assert stats.num_optimizer_steps == 6
    assert 0 < stats.clip_fraction < 1


# ---- Old log-probs and the mismatch with the rollout ----


def sampled_with(logprobs: Sequence[torch.Tensor]) -> list[TrainingSample]:
    """The samples of ``make_samples``, with these log-probs of the rollout."""
    samples = make_samples(len(logprobs))
    return [
        replace(sample, rollout_logprobs=tuple(row.tolist()))
        for sample, row in zip(samples, logprobs, strict=True)
    ]


@pytest.mark.parametrize(
    ("train_batch_size", "correction"), [(None, "none"), (4, "none"), (None, "ratio")]
)
def test_the_mismatch_is_that_before_the_update(qwen2, train_batch_size, correction):
    settings = replace(OPTIMIZATION, train_batch_size=train_batch_size)
    algorithm = ReinforcePP(rollout_correction=correction)
    trainer = make_trainer(qwen2, optimization=settings, algorithm=algorithm)
    exact = trainer.response_logprobs(make_samples())
    samples = sampled_with([row - 0.25 * (i == 0) for i, row in enumerate(exact)])
    stats = trainer.update(samples, step=0)
    share = len(exact[0]) / sum(len(row) for row in exact)
    assert stats.mismatch_max == pytest.approx(0.25, abs=1e-4)
    assert stats.mismatch_mean == pytest.approx(0.25 * share, abs=1e-4)


def test_without_a_pass_beforehand_the_mismatch_is_that_of_the_first_optimiser_step(qwen2):
    settings = replace(OPTIMIZATION, train_batch_size=4, epochs_per_buffer=2, learning_rate=1e-2)
    algorithm = Grpo(rollout_correction="ratio", kl_coef=0.1)
    trainer = make_trainer(qwen2, optimization=settings, algorithm=algorithm)
    exact = trainer.response_logprobs(make_samples())
    [first, *_] = split_into_steps(len(exact), train_batch_size=4, rng=Random("0/0/0"))
    # Those of the first step are off by 0.25, which later steps would change; others by 2.
    samples = sampled_with([row - (0.25 if i in first else 2.0) for i, row in enumerate(exact)])
    stats = trainer.update(samples, step=0)
    assert stats.num_optimizer_steps == 6
    assert stats.mismatch_mean == pytest.approx(0.25, abs=1e-5)
    assert stats.mismatch_max == pytest.approx(0.25, abs=1e-5)
    assert stats.kl == pytest.approx(0.0, abs=1e-6)  # the policy was still its reference
    assert stats.num_tokens == sum(len(row) for row in exact)


@pytest.mark.parametrize("train_batch_size", [None, 4])
def test_exact_rollout_logprobs_give_the_update_of_recomputed_ones(qwen2, train_batch_size):
    samples = sampled_with(make_trainer(qwen2).response_logprobs(make_samples()))
    settings = replace(OPTIMIZATION, train_batch_size=train_batch_size)
    recomputed = updated_weights(qwen2, samples, optimization=settings)
    ratio = ReinforcePP(rollout_correction="ratio")
    found = updated_weights(qwen2, samples, optimization=settings, algorithm=ratio)
    assert largest_difference(recomputed, found) < 1e-6


@pytest.mark.parametrize(
    ("algorithm", "changes", "num_passes"),
    [
        (ReinforcePP(), {}, 0),
        (ReinforcePP(), {"train_batch_size": 4}, 1),
        (ReinforcePP(kl_coef=0.1), {}, 2),  # its advantages hold the penalty
        (Grpo(kl_coef=0.1), {}, 1),
        (Grpo(kl_coef=0.1), {"train_batch_size": 4}, 2),
        (Dpo(), {}, 1),
        (Dpo(), {"train_batch_size": 4}, 1),  # the reference's
        (ReinforcePP(rollout_correction="ratio"), {}, 0),
        (ReinforcePP(rollout_correction="ratio"), {"train_batch_size": 4}, 0),
        (ReinforcePP(rollout_correction="ratio"), {"epochs_per_buffer": 2}, 0),
        (ReinforcePP(rollout_correction="ratio", kl_coef=0.1), {"train_batch_size": 4}, 2),
        (Grpo(rollout_correction="ratio", kl_coef=0.1), {"train_batch_size": 4}, 1),
    ],
)
def test_only_log_probs_that_an_update_needs_beforehand_take_a_pass(
    qwen2, algorithm, changes, num_passes, monkeypatch
):
    passes = []
    compute = PolicyTrainer._logprobs
    monkeypatch.setattr(
        PolicyTrainer, "_logprobs", lambda *given: passes.append(given) or compute(*given)
    )
    trainer = make_trainer(
        qwen2, algorithm=algorithm, optimization=replace(OPTIMIZATION, **changes)
    )
    trainer.update(make_candidates(), step=0)
    assert len(passes) == num_passes


def test_log_probs_of_a_pass_beforehand_give_the_update_of_its_own(qwen2, monkeypatch):
    algorithm, samples = Grpo(kl_coef=0.1), make_candidates()
    own = updated_weights(qwen2, samples, algorithm=algorithm)
    monkeypatch.setattr(trainer_module, "needs_pass_beforehand", lambda *_, **__: True)
    beforehand = updated_weights(qwen2, samples, algorithm=algorithm)
    assert largest_difference(own, beforehand) < 1e-6
    assert largest_difference(own, weights_of(make_trainer(qwen2))) > 1e-4


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_transformers_at_the_temperature(model, temperature):
    trainer = make_trainer(model, policy=replace(POLICY, zero_stage=3), temperature=temperature)
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    samples = make_samples()
    with torch.no_grad():
        expected = [plain_logprobs(plain, sample, temperature) for sample in samples]
    torch.testing.assert_close(trainer.response_logprobs(samples), expected)


# ---- The reference model ----


@pytest.mark.parametrize("estimator", ["reinforce_pp", "reinforce_pp_baseline", "grpo"])
def test_a_kl_coef_pulls_back_to_the_reference(qwen2, estimator):
    samples = [
        replace(s, response_token_ids=s.response_token_ids[:1], rollout_logprobs=(-5.0,))
        for s in make_samples()
    ]
    algorithm: Any = replace(ALGORITHMS[estimator], kl_coef=0.5)
    settings = replace(OPTIMIZATION, learning_rate=1e-3)
    trainer = make_trainer(qwen2, optimization=settings, algorithm=algorithm)
    reference = torch.cat(trainer.response_logprobs(samples))

    def distance() -> float:
        return (torch.cat(trainer.response_logprobs(samples)) - reference).square().mean().item()

    first = trainer.update(samples, step=0)
    assert first.kl == pytest.approx(0.0, abs=1e-6)
    trainer.update(samples, step=1)
    away = distance()
    moved = torch.cat(trainer.response_logprobs(samples)) - reference
    equal = [replace(s, reward=0.5) for s in samples]
    stats = [trainer.update(equal, step=2 + i) for i in range(6)]
    assert stats[0].kl == pytest.approx(moved.mean().item(), abs=1e-5)
    assert distance() < 0.5 * away


@pytest.mark.parametrize("train_batch_size", [None, 4])
def test_ratios_to_the_rollout_are_reported_and_corrected(qwen2, train_batch_size):
    # Half of the responses were sampled by the policy itself, the others three times as often.
    rows = make_trainer(qwen2).response_logprobs(make_samples())
    samples = sampled_with([row + (math.log(3) if i % 2 else 0.0) for i, row in enumerate(rows)])
    num_far, num_tokens = (sum(map(len, some)) for some in (rows[1::2], rows))
    settings = replace(OPTIMIZATION, train_batch_size=train_batch_size)

    def update(correction: str) -> UpdateStats:
        algorithm = ReinforcePP(rollout_correction=correction)
        trainer = make_trainer(qwen2, optimization=settings, algorithm=algorithm)
        return trainer.update(samples, step=0)

    stats = update("icepop")
    assert stats.rollout_ratio_max == pytest.approx(1.0, abs=1e-5)
    assert stats.rollout_ratio_mean == pytest.approx(1 - 2 / 3 * num_far / num_tokens, abs=1e-5)
    assert stats.corrected_share == pytest.approx(num_far / num_tokens)
    stats = update("seq_mask_tis")
    assert stats.corrected_share == pytest.approx(5 / 11)


def test_what_a_correction_leaves_out_does_not_move_the_policy(qwen2):
    samples = make_samples()
    apart = [replace(s, rollout_logprobs=(0.0,) * len(s.rollout_logprobs)) for s in samples]
    trainer = make_trainer(qwen2, algorithm=ReinforcePP(rollout_correction="icepop"))
    before = weights_of(trainer)
    stats = trainer.update(apart, step=0)
    assert (stats.corrected_share, stats.gradient_norm) == (1.0, 0.0)
    assert largest_difference(before, weights_of(trainer)) == 0


@pytest.mark.parametrize("train_batch_size", [None, 4])
def test_the_entropy_is_the_mean_over_response_tokens(qwen2, train_batch_size):
    samples = make_samples()
    # So small a learning rate leaves the policy as it was for all optimiser steps.
    settings = replace(OPTIMIZATION, train_batch_size=train_batch_size, learning_rate=1e-9)
    stats = make_trainer(qwen2, optimization=settings).update(samples, step=0)
    plain = AutoModelForCausalLM.from_pretrained(qwen2)
    entropies = []
    for one in samples:
        ids = torch.tensor([[*one.prompt_token_ids, *one.response_token_ids]])
        logits = plain(input_ids=ids).logits[0, len(one.prompt_token_ids) - 1 : -1]
        entropies.append(torch.distributions.Categorical(logits=logits).entropy())
    assert stats.entropy == pytest.approx(torch.cat(entropies).mean().item(), rel=1e-5)


# ---- DPO ----


def make_candidates(num_prompts: int = 5) -> list[TrainingSample]:
    """Three ragged candidates of each prompt, one after another, with different rewards."""
    samples = make_samples(3 * num_prompts)
    return [
        replace(s, prompt_token_ids=samples[i % num_prompts].prompt_token_ids)
        for i, s in enumerate(samples)
    ]


def plain_dpo(model_path: Path, samples: list[TrainingSample], settings: Optimization):
    """The update in plain PyTorch, one pair at a time."""
    model, reference = (
        AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32) for _ in range(2)
    )
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
    )

    def margin(sample: TrainingSample) -> torch.Tensor:
        with torch.no_grad():
            of_reference = plain_logprobs(reference, sample).sum()
        return plain_logprobs(model, sample).sum() - of_reference

    by_prompt: dict[tuple[int, ...], list[TrainingSample]] = {}
    for sample in samples:
        by_prompt.setdefault(tuple(sample.prompt_token_ids), []).append(sample)
    ranked = [sorted(of, key=lambda s: s.reward) for of in by_prompt.values()]
    size = settings.train_batch_size and settings.train_batch_size // 2
    for indices in split_into_steps(len(ranked), train_batch_size=size, rng=Random("0/0/0")):
        for i in indices:
            difference = margin(ranked[i][-1]) - margin(ranked[i][0])
            loss = -torch.nn.functional.logsigmoid(Dpo().beta * difference)
            (loss / len(indices)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
    return {name: weight.detach() for name, weight in model.named_parameters()}


@pytest.mark.parametrize(
    ("zero_stage", "split"),
    [
        (0, {"micro_batch_tokens": 1}),
        (2, {"micro_batch_tokens": 60}),
        (3, {"micro_batch_tokens": 90}),
    ],
    ids=str,
)
def test_a_dpo_update_of_two_steps_equals_plain_pytorch(qwen2, zero_stage, split):
    settings = replace(OPTIMIZATION, train_batch_size=6)
    trainer = make_trainer(
        qwen2,
        policy=replace(POLICY, zero_stage=zero_stage, **split),
        optimization=settings,
        algorithm=Dpo(),
    )
    stats = trainer.update(make_candidates(), step=0)
    # 5 pairs, by 3 in 2 steps; the first step's loss is log 2.
    assert (stats.num_samples, stats.num_optimizer_steps) == (10, 2)
    assert stats.policy_loss == pytest.approx(math.log(2), abs=0.01)
    expected = plain_dpo(qwen2, make_candidates(), settings)
    assert largest_difference(weights_of(trainer), expected) < 1e-5


# ---- Weights and checkpoints ----


@pytest.mark.parametrize(
    ("zero_stage", "dtype"),
    [(0, "float32"), (1, "float32"), (2, "float32"), (2, "bfloat16"), (3, "float32")],
)
def test_a_resumed_run_equals_an_uninterrupted_one(qwen2, tmp_path, zero_stage, dtype):
    options: dict[str, Any] = {
        "policy": replace(POLICY, zero_stage=zero_stage, dtype=dtype),
        "optimization": replace(
            OPTIMIZATION, train_batch_size=6, warmup_steps=2, lr_schedule="cosine"
        ),
        "num_optimizer_steps": 8,
    }
    buffers = [make_samples(seed=step) for step in range(4)]
    straight = make_trainer(qwen2, **options)
    expected = [straight.update(buffers[step], step=step) for step in range(4)]
    stopped = make_trainer(qwen2, **options)
    found = [stopped.update(buffers[step], step=step) for step in range(2)]
    for number in range(2):  # The second copy lies in the memory of the first.
        stopped.copy_checkpoint(tmp_path / str(number))
        stopped.update(make_samples(seed=9), step=9)  # What is written is the copy.
        stopped.write_checkpoint()
        stopped.load_checkpoint(tmp_path / str(number))
    stopped.close()
    resumed = make_trainer(qwen2, **options)
    resumed.load_checkpoint(tmp_path / "1")
    found += [resumed.update(buffers[step], step=step) for step in (2, 3)]
    assert found == expected
    assert largest_difference(weights_of(straight), weights_of(resumed)) == 0


def test_what_an_estimator_remembers_is_part_of_the_checkpoint(qwen2, tmp_path):
    algorithm = Custom(estimator="comas.ideas.advantages:rae")
    straight = make_trainer(qwen2, algorithm=algorithm)
    straight.update(make_samples(seed=0), step=0)
    save_checkpoint(straight, tmp_path)
    expected = straight.update(make_samples(seed=1), step=1)
    resumed = make_trainer(qwen2, algorithm=algorithm)
    resumed.load_checkpoint(tmp_path)
    assert resumed.update(make_samples(seed=1), step=1) == expected
    assert largest_difference(weights_of(straight), weights_of(resumed)) == 0
    forgetful = make_trainer(qwen2, algorithm=algorithm)
    forgetful.load_checkpoint(tmp_path)
    forgetful._estimator_memory = {}
    assert forgetful.update(make_samples(seed=1), step=1) != expected


@pytest.mark.parametrize("zero_stage", [0, 2, 3])
def test_no_checkpoint_or_that_of_another_model_is_an_error_before_anything_is_loaded(
    qwen2, folder, tmp_path, zero_stage
):
    """Not a RuntimeError, which is how a machine in trouble fails: it would fail again."""
    policy = replace(POLICY, zero_stage=zero_stage)
    other = make_trainer(folder / "llama", policy=policy)
    with pytest.raises(ValueError, match="no policy checkpoint"):
        other.load_checkpoint(tmp_path)
    save_checkpoint(make_trainer(qwen2, policy=policy), tmp_path)
    before = weights_of(other)
    # The biases of 2 layers with 3 projections each, and the output layer that is not tied.
    with pytest.raises(ValueError, match=r"is of another model \(7 weights differ: .* None here"):
        other.load_checkpoint(tmp_path)
    assert largest_difference(before, weights_of(other)) == 0


def test_a_checkpoint_that_cannot_be_written_says_why(qwen2, tmp_path):
    trainer = make_trainer(qwen2)
    trainer.copy_checkpoint(tmp_path)
    for path in trainer._checkpoints._copies:
        Path(path).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        trainer.write_checkpoint()


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_a_saved_model_loads_as_the_trained_one(model, tmp_path, zero_stage):
    trainer = make_trainer(model, policy=replace(POLICY, zero_stage=zero_stage))
    trainer.update(make_samples(), step=0)
    trainer.save_model(tmp_path / "saved")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    trained = weights_of(trainer)
    stored = {name: weight.detach() for name, weight in loaded.named_parameters()}
    assert largest_difference(trained, stored) == 0
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == (model.name == "qwen2")
    assert set(load_file(tmp_path / "saved" / "model.safetensors")) == set(trained)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert tokenizer("abc") == AutoTokenizer.from_pretrained(model)("abc")
    assert loaded.generation_config.temperature == 0.7


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_a_lone_rank_has_every_weight_whole_under_its_hugging_face_name(model, zero_stage):
    trainer = make_trainer(model, policy=replace(POLICY, zero_stage=zero_stage))
    trainer.update(make_samples(), step=0)
    whole = dict(trainer.named_weights())
    found = [(name, weight.dtype, tuple(weight.shape)) for name, weight in whole.items()]
    assert found == trainer.weight_metadata()
    plain = AutoModelForCausalLM.from_pretrained(model)
    assert list(whole) == [name for name, _ in plain.named_parameters()]
    assert not trainer.is_sharded
    assert_whole([list(chain(*trainer.weight_shards()))], whole)


def assert_whole(shards_of_ranks: list[list[Shard]], whole: dict[str, torch.Tensor]) -> None:
    """The ranks' shards of the same weights follow each other, and are ``whole`` together."""
    assert [shard.name for shard in shards_of_ranks[0]] == list(whole)
    for parts in zip(*shards_of_ranks, strict=True):
        assert {part.name for part in parts} == {parts[0].name}
        assert [p.start for p in parts] == [
            sum(len(before.values) for before in parts[:i]) for i in range(len(parts))
        ]
        together = torch.cat([part.values for part in parts])
        assert torch.equal(together, whole[parts[0].name].flatten())


def test_chunks_hold_at_most_the_limit_and_a_larger_parameter_stands_alone():
    sizes = (3, 4, 9, 1)
    parameters = [(str(n), torch.nn.Parameter(torch.zeros(n))) for n in sizes]  # 4 bytes each
    chunks = chunked(parameters, max_bytes=4 * 8)
    assert [[name for name, _ in chunk] for chunk in chunks] == [["3", "4"], ["9"], ["1"]]
    assert list(chunked([], max_bytes=8)) == []


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_a_wrongly_loaded_weight_is_found(qwen2, tmp_path, zero_stage):
    shutil.copytree(qwen2, tmp_path / "qwen2")
    trainer = make_trainer(qwen2, policy=replace(POLICY, zero_stage=zero_stage))
    language_model = trainer._language_model
    check_loaded_weights(language_model, tmp_path / "qwen2", zero_stage=zero_stage)
    other = AutoModelForCausalLM.from_pretrained(tmp_path / "qwen2")
    with torch.no_grad():
        other.model.layers[1].mlp.up_proj.weight[3, 5] += 1e-3
    other.save_pretrained(tmp_path / "qwen2")
    with pytest.raises(ValueError, match=r"1 weights .* first 'model.layers.1.mlp.up_proj.weight'"):
        check_loaded_weights(language_model, tmp_path / "qwen2", zero_stage=zero_stage)
    (tmp_path / "qwen2" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="missing"):
        check_loaded_weights(language_model, tmp_path / "qwen2", zero_stage=zero_stage)


@pytest.mark.parametrize(
    ("base", "settings"),
    [
        ("qwen2", {"final_logit_softcapping": 30.0}),
        ("llama", {"attention_dropout": 0.1}),
        ("llama", {"sliding_window": 64}),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 64}),
    ],
    ids=str,
)
def test_a_model_that_would_be_trained_wrongly_is_refused(folder, tmp_path, base, settings):
    shutil.copytree(folder / base, tmp_path / "other")
    config = json.loads((tmp_path / "other" / "config.json").read_text())
    (tmp_path / "other" / "config.json").write_text(json.dumps({**config, **settings}))
    with pytest.raises(ValueError, match=f"other has .*{next(iter(settings))}"):
        make_trainer(tmp_path / "other")


def test_models_without_plain_attention_or_with_a_bias_in_the_head_are_refused():
    shape = {"vocab_size": 16, "hidden_size": 16, "num_hidden_layers": 1}
    for config in (MambaConfig(**shape), BloomConfig(n_head=2, **shape)):
        with pytest.raises(ValueError, match=f"model_type = {config.model_type}"):
            check_trainable(AutoModelForCausalLM.from_config(config))
    phi = PhiConfig(num_attention_heads=2, intermediate_size=16, **shape)
    with pytest.raises(ValueError, match="has a bias in its output layer"):
        check_trainable(AutoModelForCausalLM.from_config(phi))


@pytest.mark.parametrize(
    ("zero_stage", "adam_offload"), [(1, False), (2, False), (2, True), (3, True)]
)
def test_offloaded_states_are_saved_whole_and_come_back_unchanged(
    qwen2, tmp_path, monkeypatch, zero_stage, adam_offload
):
    """As in training on shared GPUs, where the rollout engine is awake when a step is saved."""
    if adam_offload:
        monkeypatch.setattr(engine_module, "deepspeed_config", host_optimizer)
    options: dict[str, Any] = {
        "policy": replace(POLICY, zero_stage=zero_stage),
        "algorithm": ReinforcePP(kl_coef=0.1),
    }
    awake, asleep, resumed = (make_trainer(qwen2, **options) for _ in range(3))
    buffers = [make_samples(seed=step) for step in range(2)]
    assert asleep.update(buffers[0], step=0) == awake.update(buffers[0], step=0)
    asleep.offload_states()
    save_checkpoint(asleep, tmp_path / "checkpoint")
    asleep.save_model(tmp_path / "saved")
    expected = weights_of(awake)
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert largest_difference(expected, {name: saved[name] for name in expected}) == 0
    asleep.reload_states()
    resumed.load_checkpoint(tmp_path / "checkpoint")
    stats = awake.update(buffers[1], step=1)
    for trainer in (asleep, resumed):
        assert trainer.update(buffers[1], step=1) == stats
        assert largest_difference(weights_of(awake), weights_of(trainer)) == 0


def test_a_loaded_optimiser_makes_its_host_buffers_anew():
    """Else they are taken for states, which loading moves to the device."""
    weight = torch.nn.Parameter(torch.ones(3))
    saved, loaded = (torch.optim.AdamW([weight]) for _ in range(2))
    weight.sum().backward()
    saved.step()
    offload_adam_states(saved, "cpu")
    loaded.load_state_dict(saved.state_dict())
    assert "exp_avg_offload_buffer" in loaded.state[weight]
    forget_host_buffers(loaded)
    assert loaded.state[weight].keys() == {"step", "exp_avg", "exp_avg_sq"}
    assert loaded.state[weight]["exp_avg"].tolist() == pytest.approx([0.1] * 3)


def test_without_zero_states_cannot_be_offloaded(qwen2):
    trainer = make_trainer(qwen2, policy=replace(POLICY, zero_stage=0))
    with pytest.raises(ValueError, match=r"policy.zero_stage = 0 .* cluster.placement"):
        trainer.offload_states()


@pytest.mark.parametrize(
    ("device", "num_trained", "bucket"),
    [
        ("cuda", 3 * 10**9, 500_000_000),
        ("cuda", 60_000_000, 60_000_000),  # an adapter: 0.1 GB and not 1
        ("cpu", 3 * 10**9, 50_000_000),
        ("cpu", 200_000, 200_000),
    ],
)
def test_the_optimiser_is_offloaded_on_gpus_only_and_the_buffer_of_gradients_is_small(
    device, num_trained, bucket
):
    paper = Policy(zero_stage=3, adam_offload=True, dtype="bfloat16")
    config = deepspeed_config(paper, OPTIMIZATION, device=device, num_trained=num_trained)
    zero = config["zero_optimization"]
    assert zero["reduce_bucket_size"] == bucket
    assert zero.get("offload_optimizer", {}).get("device") == ("cpu" if device == "cuda" else None)
    assert config["bf16"] == {"enabled": True}


@pytest.mark.parametrize(
    ("device", "known", "threads"),
    [("cpu", None, "1"), ("cuda", None, "16"), ("cpu", "8", "8"), ("cuda", "8", "8")],
)
def test_a_rank_computes_on_one_thread_on_cpu_and_on_its_part_of_a_gpus_host(
    monkeypatch, device, known, threads
):
    """Unless the environment asks for others."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if known is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", known)
    environment = process_environment(device, host_threads=16)
    segments = environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    assert segments == ("expandable_segments:True" if device == "cuda" else None)
    expected = {"DS_ACCELERATOR": device, "OMP_NUM_THREADS": threads, **LOOPBACK_GROUPS}
    assert environment == expected


# ---- Two ranks ----


def run_rank(rank: int, work: Path) -> None:
    """Every ZeRO stage on two ranks; rank 0 writes what the test compares."""
    torch.set_num_threads(1)
    engine_module.deepspeed_config = shard_every_parameter
    settings = replace(OPTIMIZATION, train_batch_size=6)
    found: dict[str, Any] = {}
    for stage in ZERO_STAGES:
        # Six samples of one micro batch each over two ranks, and five: one rank gets an empty one.
        policy = replace(POLICY, ranks_per_policy=2, zero_stage=stage, micro_batch_tokens=1)
        options: dict[str, Any] = {
            "policy": policy,
            "optimization": settings,
            "algorithm": ReinforcePP(kl_coef=0.1),
            "rank": rank,
        }
        trainer = make_trainer(work / "qwen2", rendezvous=work / "rendezvous2", **options)
        stats = [trainer.update(make_samples(), step=0)]
        trainer.copy_checkpoint(work / f"checkpoint{stage}")
        stats.append(trainer.update(make_samples(seed=1), step=1))
        trainer.write_checkpoint()
        distributed.barrier()
        resumed = make_trainer(work / "qwen2", rendezvous=work / "rendezvous2", **options)
        resumed.load_checkpoint(work / f"checkpoint{stage}")
        again = resumed.update(make_samples(seed=1), step=1)
        resumed.save_model(work / f"saved{stage}")
        found[str(stage)] = {
            "stats": stats,
            "weights": weights_of(trainer),
            "resumed": weights_of(resumed),
            "again": again,
        }
    # Five pairs over two ranks: one of them gets an empty micro batch.
    paired = make_trainer(
        work / "qwen2",
        policy=replace(POLICY, ranks_per_policy=2, zero_stage=3, micro_batch_tokens=1),
        algorithm=Dpo(),
        rank=rank,
        rendezvous=work / "rendezvous2",
    )
    found["dpo"] = {
        "stats": paired.update(make_candidates(), step=0),
        "weights": weights_of(paired),
    }
    found["is_sharded"] = paired.is_sharded
    found["dpo"]["shards"] = list(chain(*paired.weight_shards()))
    layers, weights = sharded_layers()
    shards = list(chain(*weight_shards(layers, zero_stage=3, rank=rank)))
    found["layers"] = {"weights": weights, "shards": shards}
    found["wrong_gathers"] = count_wrong_gathers(layers, weights, times=30)
    torch.save(found, work / f"rank{rank}.pt")


def sharded_layers() -> tuple[torch.nn.ModuleList, dict[str, torch.Tensor]]:
    """Three large layers and a small one, of an odd number of elements, and their weights."""
    sizes = [1024, 1024, 1024, 3]
    model = torch.nn.ModuleList([torch.nn.Linear(size, size, bias=False) for size in sizes])
    for parameter in model.parameters():
        distributed.broadcast(parameter.data, src=0)
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    deepspeed.initialize(
        model=model,
        config={
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        },
        model_parameters=list(model.parameters()),
        optimizer=torch.optim.AdamW(model.parameters()),
    )
    return model, weights


def count_wrong_gathers(
    layers: torch.nn.ModuleList, weights: dict[str, torch.Tensor], *, times: int
) -> int:
    """How often a chunk that ends with a small weight is read before its large ones are there."""
    wrong = 0
    for _ in range(times):
        gathered = dict(named_weights(layers, zero_stage=3))
        assert gathered.keys() == weights.keys()
        wrong += not all(torch.equal(gathered[name], weights[name]) for name in weights)
    return wrong


@pytest.fixture(scope="module")
def two_ranks(folder: Path) -> list[dict[str, Any]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(folder)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [rank.communicate(timeout=240)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(errors)[-3000:]
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(2)]


def assert_alike(one: UpdateStats, other: UpdateStats) -> None:
    """Equal, up to the rounding of sums in another order."""
    for name, value in vars(one).items():
        if name == "advantages":
            value = list(chain.from_iterable(value))
            expected = list(chain.from_iterable(other.advantages))
        else:
            expected = getattr(other, name)
        assert value == pytest.approx(expected, rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("zero_stage", ZERO_STAGES)
def test_two_ranks_equal_one_and_resume_exactly(qwen2, two_ranks, folder, zero_stage):
    alone = make_trainer(
        qwen2,
        policy=replace(POLICY, zero_stage=zero_stage),
        optimization=replace(OPTIMIZATION, train_batch_size=6),
        algorithm=ReinforcePP(kl_coef=0.1),
    )
    first, second = (rank[str(zero_stage)] for rank in two_ranks)
    for step in range(2):
        assert_alike(first["stats"][step], alone.update(make_samples(seed=step), step=step))
    assert largest_difference(weights_of(alone), first["weights"]) < 1e-5
    assert first["stats"] == second["stats"]
    assert first["again"] == first["stats"][1]
    saved = load_file(folder / f"saved{zero_stage}" / "model.safetensors")
    for weights in (second["weights"], first["resumed"], {n: saved[n] for n in first["weights"]}):
        assert largest_difference(first["weights"], weights) == 0


def test_pairs_on_two_ranks_equal_those_on_one(qwen2, two_ranks):
    alone = make_trainer(qwen2, policy=replace(POLICY, zero_stage=3), algorithm=Dpo())
    expected = alone.update(make_candidates(), step=0)
    for rank in two_ranks:
        assert_alike(rank["dpo"]["stats"], expected)
        assert largest_difference(weights_of(alone), rank["dpo"]["weights"]) < 1e-5


def test_the_shards_of_two_ranks_are_the_weights_and_a_chunk_is_whole_when_it_is_read(two_ranks):
    assert all(rank["is_sharded"] for rank in two_ranks)
    for model in ("dpo", "layers"):
        assert_whole([rank[model]["shards"] for rank in two_ranks], two_ranks[0][model]["weights"])
    # DeepSpeed 0.19.6 waited for the last weight of a chunk only: gloo gathers side by side.
    assert [rank["wrong_gathers"] for rank in two_ranks] == [0, 0]


if __name__ == "__main__":
    run_rank(int(sys.argv[1]), Path(sys.argv[2]))
