"""The policy engine on tiny models; run as a script, this file is one of two ranks."""

import os

from tables import case_file, cases

os.environ["DS_ACCELERATOR"] = "cpu"

import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import transformers
from deepspeed.runtime.zero.offload_states import offload_adam_states
from model_types import save_model_type
from programs import run_to_end
from safetensors.torch import load_file, save_file
from tiny_models import CHAT_TEMPLATE, distributions, save_tiny_model
from torch.nn.functional import logsigmoid

from comas.config import schema
from comas.config.schema import Custom, Dpo, Grpo, Optimization, ReinforcePP
from comas.engines.policy import engine as engine_module
from comas.engines.policy import model as model_module
from comas.engines.policy import trainer as trainer_module
from comas.engines.policy.deepspeed_options import deepspeed_config
from comas.engines.policy.optimizers import forget_host_buffers
from comas.engines.policy.trainer import PolicyTrainer
from comas.policy_optimization import batching
from comas.policy_optimization.advantages import compute_advantages
from comas.policy_optimization.batching import MicroBatch
from comas.policy_optimization.update_stats import UpdateStats
from comas.types import TrainingSample

pytestmark = pytest.mark.stack

VOCABULARY = 128
ZERO_STAGES = [0, 1, 2, 3]
stages_and_dtypes = cases(
    "zero_stage, dtype", (0, "bfloat16"), (1, "float32"), (2, "bfloat16"), (3, "float32")
)
in_one_step_or_several = pytest.mark.parametrize("train_batch_size", [None, 4])
POLICY = schema.Policy(
    ranks_per_policy=1,
    dtype="float32",
    zero_stage=2,
    adam_offload=False,
    gradient_checkpointing=False,
    micro_batch_tokens=80,
)
ROLLOUT = schema.Rollout(max_prompt_tokens=49, max_response_tokens=15)
# Adam's first step is the learning rate times g / (|g| + 1e-8), which amplifies the rounding of
# tiny gradients. Tolerances of 1e-5 are 5 % of a step.
LEARNING_RATE = 2e-4
OPTIMIZATION = Optimization(learning_rate=LEARNING_RATE, warmup_steps=0, train_batch_size=None)
REINFORCE_PP = ReinforcePP()
DR_GRPO = Custom(estimator="grpo", loss_aggregation="constant_length")

Weights = dict[str, torch.Tensor]


def make_samples(count: int = 11, *, seed: int = 0) -> list[TrainingSample]:
    """Ragged random samples in groups of 4, with rewards between 0 and 1."""
    rng = Random(seed)

    def tokens(shortest: int, longest: int) -> tuple[int, ...]:
        return tuple(rng.randrange(VOCABULARY) for _ in range(rng.randint(shortest, longest)))

    samples = []
    for i in range(count):
        prompt, response = tokens(3, 20), tokens(1, 15)
        rollout = tuple(rng.uniform(-6, -4) for _ in response)
        place = (0, f"q{i // 4}", "d", f"r0.s{i}", 0, "solution")
        samples.append(TrainingSample(*place, prompt, response, rollout, rng.random()))
    return samples


def make_candidates(num_prompts: int = 5) -> list[TrainingSample]:
    """Three ragged candidates of each prompt, one after another, with different rewards."""
    samples = make_samples(3 * num_prompts)
    return [
        replace(s, prompt_token_ids=samples[i % num_prompts].prompt_token_ids)
        for i, s in enumerate(samples)
    ]


def make_uneven() -> list[TrainingSample]:
    sizes = [len((*s.prompt_token_ids, *s.response_token_ids)) for s in make_samples()]
    return [make_samples()[sizes.index(size)] for size in (max(sizes), min(sizes))]


def sampled_with(logprobs: Sequence[torch.Tensor], samples=()) -> list[TrainingSample]:
    """``samples``, or those of ``make_samples``, with these log-probs of the rollout."""
    return [
        replace(sample, rollout_logprobs=tuple(row.tolist()))
        for sample, row in zip(samples or make_samples(), logprobs, strict=True)
    ]


def shard_every_parameter(*args: Any, offload: bool = False, **kwargs: Any) -> dict[str, Any]:
    """Make ZeRO-3 shard small parameters, too; ``offload`` moves the optimiser to the host, as
    ``policy.adam_offload`` does on a GPU."""
    config = deepspeed_config(*args, **kwargs)
    config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    if offload:
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    return config


def make_trainer(
    model: Path,
    *,
    algorithm: schema.Algorithm = REINFORCE_PP,
    optimization: Optimization = OPTIMIZATION,
    temperature: float | list[float] = 1.0,
    rank: int = 0,
    rendezvous: Path | None = None,
    num_optimizer_steps: int | None = None,
    **keys: Any,
) -> PolicyTrainer:
    """A rank with these keys other than those of ``POLICY`` and ``OPTIMIZATION``."""
    of_update = {key: keys.pop(key) for key in [*keys] if hasattr(OPTIMIZATION, key)}
    config = schema.Config(
        policy=replace(POLICY, **keys),
        algorithm=algorithm,
        optimization=replace(optimization, **of_update),
        rollout=replace(ROLLOUT, temperature=temperature),
    )
    return PolicyTrainer(
        str(model),
        config,
        device="cpu",
        rank=rank,
        rendezvous=rendezvous or model.parent / "rendezvous",
        num_optimizer_steps=num_optimizer_steps,
    )


def weights_of(trainer: PolicyTrainer) -> Weights:
    return {name: weight.clone() for name, weight in trainer.named_weights()}


def logprobs_of(trainer: PolicyTrainer, samples: Sequence[TrainingSample]) -> list[torch.Tensor]:
    logprobs = trainer._logprobs(trainer._engine, samples)
    return [torch.tensor(row) for row in batching.response_rows(logprobs, samples)]


def updated_weights(model: Path, samples: Sequence[TrainingSample], **options: Any) -> Weights:
    trainer = make_trainer(model, **options)
    trainer.update(samples, step=0)
    return weights_of(trainer)


def largest_difference(one: Weights, other: Weights) -> float:
    assert list(one) == list(other)
    return max((one[name] - other[name]).abs().max().item() for name in one)


def load_plain(folder: Path) -> torch.nn.Module:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def plain_weights(model: torch.nn.Module) -> Weights:
    return {name: weight.detach() for name, weight in model.named_parameters()}


def plain_logprobs(model: torch.nn.Module, sample: TrainingSample, temperature: float = 1.0):
    response = torch.tensor(sample.response_token_ids)
    return distributions(model, sample, temperature).log_prob(response)


def plain_step(model, optimizer, settings: Optimization) -> float:
    """Returns the gradient's norm before clipping."""
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
    optimizer.step()
    optimizer.zero_grad()
    return norm.item()


def plain_adamw(model: torch.nn.Module, settings: Optimization) -> torch.optim.Optimizer:
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    options = {"betas": (0.9, 0.95), "weight_decay": 0.0}
    return torch.optim.AdamW(trained, lr=settings.learning_rate, **options)


def plain_updates(model, samples, settings, algorithm: Any = REINFORCE_PP, *, num_updates=1):
    """Update ``model`` on the same samples at steps 0, 1, ...; return the norms of the gradients
    before clipping."""
    optimizer = plain_adamw(model, settings)
    mask = batching.response_mask(samples)
    advantages = compute_advantages(
        samples, mask=mask, log_ratios=torch.zeros(mask.shape), algorithm=algorithm, memory={}
    )
    norms = []
    for step in range(num_updates):
        with torch.no_grad():
            old = [plain_logprobs(model, sample) for sample in samples]
        for indices in batching.split_into_steps(
            len(samples), train_batch_size=settings.train_batch_size, rng=Random(f"0/{step}/0")
        ):
            num_tokens = sum(len(samples[i].response_token_ids) for i in indices)
            divisor = 15 * len(indices) if algorithm is DR_GRPO else num_tokens
            for i in indices:
                ratio = (plain_logprobs(model, samples[i]) - old[i]).exp()
                advantage = advantages[i, : len(ratio)]
                gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
                (-gain.sum() / divisor).backward()
            norms.append(plain_step(model, optimizer, settings))
    return norms


def plain_dpo(folder: Path, samples: list[TrainingSample], settings: Optimization) -> Weights:
    model, reference = load_plain(folder), load_plain(folder).requires_grad_(False)
    optimizer = plain_adamw(model, settings)

    def margin(sample: TrainingSample) -> torch.Tensor:
        return (plain_logprobs(model, sample) - plain_logprobs(reference, sample)).sum()

    by_prompt: dict[tuple[int, ...], list[TrainingSample]] = {}
    for sample in samples:
        by_prompt.setdefault(tuple(sample.prompt_token_ids), []).append(sample)
    ranked = [sorted(group, key=lambda s: s.reward) for group in by_prompt.values()]
    size = settings.train_batch_size and settings.train_batch_size // 2
    for indices in batching.split_into_steps(
        len(ranked), train_batch_size=size, rng=Random("0/0/0")
    ):
        for i in indices:
            difference = margin(ranked[i][-1]) - margin(ranked[i][0])
            (-logsigmoid(Dpo().beta * difference) / len(indices)).backward()
        plain_step(model, optimizer, settings)
    return plain_weights(model)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied Qwen2 and an untied Llama; and a Gemma 3, whose rows are padded."""
    path = tmp_path_factory.mktemp("policy")
    save_tiny_model(path / "qwen2", "tied", num_key_value_heads=1)
    save_tiny_model(path / "llama", "untied", num_key_value_heads=1)
    save_model_type(path / "gemma3", "gemma3_text")
    # Trap: DeepSpeed makes no second group in a process; test_adapters.py has the same one.
    return path


@pytest.fixture
def qwen2(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(engine_module, "deepspeed_config", shard_every_parameter)
    return folder / "qwen2"


@cases(
    "name, make, zero_stage, gradient_checkpointing, algorithm",
    ("qwen2", make_samples, 0, False, REINFORCE_PP),
    ("qwen2", make_candidates, 1, True, REINFORCE_PP),
    ("qwen2", make_candidates, 2, None, REINFORCE_PP),
    ("qwen2", make_candidates, 3, True, REINFORCE_PP),
    ("qwen2", make_candidates, 2, False, Grpo()),
    ("qwen2", make_samples, 2, False, DR_GRPO),
    ("llama", make_candidates, 2, False, REINFORCE_PP),
    ("llama", make_candidates, 3, False, REINFORCE_PP),
    ("gemma3", make_samples, 1, False, REINFORCE_PP),  # shares no prompts
    ("gemma3", make_samples, 2, None, REINFORCE_PP),
    ("gemma3", make_samples, 3, True, REINFORCE_PP),
)
def test_steps_equal_plain_pytorch(
    qwen2, name, make, zero_stage, gradient_checkpointing, algorithm
):
    model, settings = qwen2.parent / name, replace(OPTIMIZATION, train_batch_size=6)
    found = updated_weights(
        model,
        make(),
        optimization=settings,
        algorithm=algorithm,
        zero_stage=zero_stage,
        gradient_checkpointing=gradient_checkpointing,
        # Of samples of 4 to 35 tokens some are alone, and None has their activations recomputed.
        micro_batch_tokens=18 if gradient_checkpointing is None else 50,
    )
    plain = load_plain(model)
    plain_updates(plain, make(), settings, algorithm)
    limit = 3e-5 if name == "gemma3" else 1e-5  # of padded rows 1.4e-5 were measured
    assert largest_difference(found, plain_weights(plain)) < limit


@in_one_step_or_several
def test_a_dpo_update_equals_plain_pytorch(qwen2, train_batch_size):
    settings = replace(OPTIMIZATION, train_batch_size=train_batch_size)
    sharding = {"zero_stage": 3, "micro_batch_tokens": 60}
    trainer = make_trainer(qwen2, optimization=settings, algorithm=Dpo(), **sharding)
    stats = trainer.update(make_candidates(), step=0)
    # 5 pairs, in several steps by 2 of them; the first step's loss is log 2.
    assert (stats.num_samples, stats.num_optimizer_steps) == (10, 3 if train_batch_size else 1)
    assert stats.policy_loss == pytest.approx(math.log(2), abs=0.01)
    expected = plain_dpo(qwen2, make_candidates(), settings)
    assert largest_difference(weights_of(trainer), expected) < 2e-5  # 1.01e-5 on an AMD EPYC


@stages_and_dtypes
def test_the_gradient_norm_is_that_before_clipping(qwen2, zero_stage, dtype):
    settings = replace(OPTIMIZATION, max_grad_norm=0.01)
    trainer = make_trainer(qwen2, optimization=settings, zero_stage=zero_stage, dtype=dtype)
    stats = trainer.update(make_samples(), step=0)
    [norm] = plain_updates(load_plain(qwen2), make_samples(), settings)
    assert norm > 0.01
    assert stats.gradient_norm == pytest.approx(norm, rel=1e-5 if dtype == "float32" else 0.05)


def recorded_passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[MicroBatch, bool]]:
    """Every micro batch of updates from now on, and whether its pass has a gradient."""
    passes: list[tuple[MicroBatch, bool]] = []
    prepare = PolicyTrainer._recompute_activations_of

    def recorded(trainer: PolicyTrainer, batch: MicroBatch) -> None:
        passes.append((batch, torch.is_grad_enabled()))
        prepare(trainer, batch)

    monkeypatch.setattr(PolicyTrainer, "_recompute_activations_of", recorded)
    return passes


def test_a_prompt_of_several_samples_is_computed_once(qwen2, monkeypatch):
    samples = make_candidates()
    passes = recorded_passes(monkeypatch)
    make_trainer(qwen2, micro_batch_tokens=2000).update(samples, step=0)
    parts = [*{s.prompt_token_ids for s in samples}, *(s.response_token_ids for s in samples)]
    assert sum(batch.input_ids.numel() for batch, _ in passes) == sum(map(len, parts))


@cases(
    "zero_stage, algorithm, num_idle",
    (0, Grpo(), 7),
    (3, Grpo(), 7),
    (2, Grpo(kl_coef=0.1), 0),
    (2, REINFORCE_PP, 0),
)
def test_idle_samples_take_no_backward_pass(qwen2, zero_stage, algorithm, num_idle, monkeypatch):
    """Groups of 4, 4 and 3, of which the first and the last are of equal rewards."""
    samples = [s if 4 <= i < 8 else replace(s, reward=0.5) for i, s in enumerate(make_samples())]
    passes = recorded_passes(monkeypatch)

    def update() -> tuple[UpdateStats, Weights]:
        trainer = make_trainer(qwen2, zero_stage=zero_stage, algorithm=algorithm)
        return trainer.update(samples, step=0), weights_of(trainer)

    stats, weights = update()
    assert sum(len(batch.mask) for batch, has_gradient in passes if not has_gradient) == num_idle
    assert sum(len(batch.mask) for batch, _ in passes) == len(samples)
    monkeypatch.setattr(trainer_module, "idle_samples", lambda *_, **__: [])
    others, other_weights = update()
    assert largest_difference(weights, other_weights) < 1e-6
    assert_alike(stats, others)


@cases("zero_stage, algorithm, samples", (2, REINFORCE_PP, []), (3, Dpo(), make_candidates()))
def test_an_empty_buffer_or_one_without_a_pair_is_nothing(qwen2, zero_stage, algorithm, samples):
    trainer = make_trainer(qwen2, zero_stage=zero_stage, algorithm=algorithm)
    before = weights_of(trainer)
    stats = trainer.update([replace(s, reward=0.5) for s in samples], step=0)
    assert stats == UpdateStats(learning_rate=LEARNING_RATE)
    assert largest_difference(before, weights_of(trainer)) == 0


@stages_and_dtypes
def test_a_gradient_that_is_not_finite_is_skipped_and_leaves_no_trace(qwen2, zero_stage, dtype):
    samples = make_samples()
    broken = [*samples[:3], replace(samples[3], reward=float("nan")), *samples[4:]]
    trainer = make_trainer(qwen2, zero_stage=zero_stage, dtype=dtype)
    before = weights_of(trainer)
    stats = trainer.update(broken, step=0)
    assert (stats.num_optimizer_steps, stats.num_skipped_steps) == (0, 1)
    assert largest_difference(before, weights_of(trainer)) == 0
    stats = trainer.update(samples, step=1)
    assert (stats.num_optimizer_steps, stats.num_skipped_steps) == (1, 0)
    untroubled = make_trainer(qwen2, zero_stage=zero_stage, dtype=dtype)
    assert untroubled.update(samples, step=1) == stats
    assert largest_difference(weights_of(untroubled), weights_of(trainer)) == 0


@pytest.mark.parametrize("zero_stage", [0, 2])
def test_an_optimiser_of_two_groups_may_be_a_file_on_a_schedule(qwen2, tmp_path, zero_stage):
    (tmp_path / "my.py").write_text(case_file("policy_engine")["TWO_GROUPS"])
    changes = {"optimizer": f"{tmp_path}/my.py:two_groups", "learning_rate": 0.1}
    settings = replace(OPTIMIZATION, warmup_steps=2, **changes)
    trainer = make_trainer(qwen2, optimization=settings, zero_stage=zero_stage)
    before = weights_of(trainer)
    trainer.update(make_samples(), step=0)
    moved = {name: weight - before[name] for name, weight in weights_of(trainer).items()}
    alike = replace(settings, optimizer=f"{tmp_path}/my.py:one_group")
    plain = make_trainer(qwen2, optimization=alike, zero_stage=zero_stage)
    plain.update(make_samples(), step=0)
    for name, weight in weights_of(plain).items():
        factor = 10 if name.endswith("_proj.weight") else 1
        difference = moved[name] - factor * (weight - before[name])
        assert difference.abs().max() < 1e-6 < 0.1 * moved[name].abs().max()
    rates = [trainer.update(make_samples(), step=1).learning_rate, *trainer._engine.get_lr()]
    assert rates == [1.0, 1.0, 0.1]


def test_without_a_pass_beforehand_the_mismatch_is_that_of_the_first_optimiser_step(qwen2):
    algorithm = Grpo(rollout_correction="ratio", kl_coef=0.1)
    steps = {"train_batch_size": 4, "epochs_per_buffer": 2, "learning_rate": 1e-2}
    trainer = make_trainer(qwen2, algorithm=algorithm, **steps)
    exact = logprobs_of(trainer, make_samples())
    [first, *_] = batching.split_into_steps(len(exact), train_batch_size=4, rng=Random("0/0/0"))
    # Those of the first step are off by 0.25, which later steps would change; others by 2.
    samples = sampled_with([row - (0.25 if i in first else 2.0) for i, row in enumerate(exact)])
    stats = trainer.update(samples, step=0)
    assert stats.num_optimizer_steps == 6
    assert 0 < stats.clip_fraction < 1
    assert (stats.mismatch_mean, stats.mismatch_max) == pytest.approx((0.25, 0.25), abs=1e-5)
    assert stats.kl == pytest.approx(0.0, abs=1e-6)  # the policy was still its reference
    assert stats.num_tokens == sum(len(row) for row in exact)


@pytest.mark.parametrize("name", ["qwen2", "gemma3"])
def test_logprobs_are_those_at_the_temperature_of_each_agent(qwen2, name):
    model, temperatures = qwen2.parent / name, [1.3, 0.7]
    trainer = make_trainer(model, temperature=temperatures, algorithm=ReinforcePP(kl_coef=0.5))
    samples = [replace(s, agent_index=i % 2) for i, s in enumerate(make_samples())]
    plain = load_plain(model).eval()
    with torch.no_grad():
        rows = [plain_logprobs(plain, s, temperatures[s.agent_index]) for s in samples]
    torch.testing.assert_close(logprobs_of(trainer, samples), rows)
    sampled = sampled_with(rows, samples)
    stats = trainer.update(sampled, step=0)
    # Neither the rollout nor the reference is another policy.
    assert (stats.mismatch_max, stats.kl) == pytest.approx((0.0, 0.0), abs=1e-4)
    alike, listed, each = (
        updated_weights(model, sampled, temperature=t) for t in (0.7, [0.7, 0.7], temperatures)
    )
    assert largest_difference(alike, listed) < 1e-6 < 1e-4 < largest_difference(alike, each)


@in_one_step_or_several
def test_ratios_to_the_rollout_are_reported_and_corrected(qwen2, train_batch_size):
    # Half of the responses were sampled by the policy itself, the others with probability x 3.
    rows = logprobs_of(make_trainer(qwen2), make_samples())
    samples = sampled_with([row + (math.log(3) if i % 2 else 0.0) for i, row in enumerate(rows)])
    num_far, num_tokens = (sum(map(len, some)) for some in (rows[1::2], rows))

    def update(correction: str) -> UpdateStats:
        algorithm = ReinforcePP(rollout_correction=correction)
        trainer = make_trainer(qwen2, train_batch_size=train_batch_size, algorithm=algorithm)
        return trainer.update(samples, step=0)

    stats = update("icepop")
    assert stats.corrected_share == pytest.approx(num_far / num_tokens)
    assert stats.mismatch_max == pytest.approx(math.log(3), abs=1e-4)
    assert stats.mismatch_mean == pytest.approx(math.log(3) * num_far / num_tokens, abs=1e-4)
    assert update("seq_mask_tis").corrected_share == pytest.approx(num_far / num_tokens)


def test_the_entropy_is_the_mean_over_response_tokens(qwen2):
    samples = make_samples()
    # So small a learning rate leaves the policy as it was for all optimiser steps.
    stats = make_trainer(qwen2, train_batch_size=4, learning_rate=1e-9).update(samples, step=0)
    plain = load_plain(qwen2)
    entropies = torch.cat([distributions(plain, one).entropy() for one in samples])
    assert stats.entropy == pytest.approx(entropies.mean().item(), rel=1e-5)


@pytest.mark.parametrize("algorithm", [ReinforcePP(kl_coef=0.5), Grpo(kl_coef=0.5)])
def test_a_kl_coef_pulls_back_to_the_reference(qwen2, algorithm):
    samples = [
        replace(s, response_token_ids=s.response_token_ids[:1], rollout_logprobs=(-5.0,))
        for s in make_samples()
    ]
    trainer = make_trainer(qwen2, learning_rate=1e-3, algorithm=algorithm)
    reference = torch.cat(logprobs_of(trainer, samples))

    def moved() -> torch.Tensor:
        return torch.cat(logprobs_of(trainer, samples)) - reference

    assert trainer.update(samples, step=0).kl == pytest.approx(0.0, abs=1e-6)
    trainer.update(samples, step=1)
    away = moved()
    equal = [replace(s, reward=0.5) for s in samples]
    [first, *_] = [trainer.update(equal, step=2 + i) for i in range(6)]
    assert first.kl == pytest.approx(away.mean().item(), abs=1e-5)
    assert moved().square().mean() < 0.5 * away.square().mean()


def test_what_an_estimator_remembers_is_part_of_the_checkpoint(qwen2, tmp_path):
    make = partial(make_trainer, qwen2, algorithm=Custom(estimator="comas.ideas.advantages:rae"))
    straight, resumed, forgetful = make(), make(), make()
    straight.update(make_samples(seed=0), step=0)
    straight.save_checkpoint(tmp_path)
    expected = straight.update(make_samples(seed=1), step=1)
    for trainer in (resumed, forgetful):
        trainer.load_checkpoint(tmp_path)
    forgetful._estimator_memory = {}
    assert resumed.update(make_samples(seed=1), step=1) == expected
    assert forgetful.update(make_samples(seed=1), step=1) != expected


@cases("zero_stage, dtype", (0, "float32"), (0, "bfloat16"), (2, "float32"), (3, "bfloat16"))
def test_a_resume_goes_on_with_the_rates_that_it_asks_for(qwen2, tmp_path, zero_stage, dtype):
    make = partial(make_trainer, qwen2, zero_stage=zero_stage, dtype=dtype, warmup_steps=4)
    trainer = make(learning_rate=1e-3, weight_decay=0.1)
    trainer.update(make_samples(), step=0)
    trainer.save_checkpoint(tmp_path)
    lower = make(learning_rate=1e-5)
    lower.load_checkpoint(tmp_path)
    rates = [lower.update(make_samples(), step=step).learning_rate for step in (1, 2)]
    assert rates == pytest.approx([2 / 4 * 1e-5, 3 / 4 * 1e-5])
    assert lower._engine.basic_optimizer.param_groups[0]["weight_decay"] == 0.0


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_no_checkpoint_or_that_of_another_model_is_an_error(qwen2, tmp_path, zero_stage):
    """A ValueError: a RuntimeError would count as a lost engine, and be retried."""
    other = make_trainer(qwen2.parent / "llama", zero_stage=zero_stage)
    with pytest.raises(ValueError, match="no policy checkpoint"):
        other.load_checkpoint(tmp_path)
    make_trainer(qwen2, zero_stage=zero_stage).save_checkpoint(tmp_path)
    with pytest.raises(ValueError, match=r"is of another model, .* Leave society.models, "):
        other.load_checkpoint(tmp_path)


@cases("name, zero_stage", ("qwen2", 2), ("llama", 3))
def test_a_saved_model_loads_as_the_trained_one(qwen2, tmp_path, name, zero_stage):
    model = qwen2.parent / name
    trainer = make_trainer(model, zero_stage=zero_stage)
    trainer.update(make_samples(), step=0)
    trainer.save_model(tmp_path / "saved")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    trained = weights_of(trainer)
    assert largest_difference(trained, plain_weights(loaded)) == 0
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == (name == "qwen2")
    assert set(load_file(tmp_path / "saved" / "model.safetensors")) == set(trained)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert tokenizer("abc") == transformers.AutoTokenizer.from_pretrained(model)("abc")
    assert loaded.generation_config.temperature == 0.1


def test_a_model_whose_files_lack_weights_is_refused(qwen2, tmp_path):
    shutil.copytree(qwen2, tmp_path / "part")
    weights = load_file(qwen2 / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "part/model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lack 1 weights .* 'model.layers.1.mlp.up_proj.weight'"):
        make_trainer(tmp_path / "part")


@cases(
    "zero_stage, dtype, adam_offload",
    *[(1, "float32", False), (2, "bfloat16", False), (3, "float32", True)],
)
def test_offloaded_states_are_saved(qwen2, tmp_path, monkeypatch, zero_stage, dtype, adam_offload):
    """As on shared GPUs, where states are offloaded when a step is saved."""
    config = partial(shard_every_parameter, offload=adam_offload)
    monkeypatch.setattr(engine_module, "deepspeed_config", config)
    rank = {"algorithm": ReinforcePP(kl_coef=0.1), "zero_stage": zero_stage, "dtype": dtype}
    awake, asleep, resumed = (make_trainer(qwen2, **rank) for _ in range(3))
    buffers = [make_samples(seed=step) for step in range(2)]
    assert asleep.update(buffers[0], step=0) == awake.update(buffers[0], step=0)
    asleep.offload_states()
    asleep.save_checkpoint(tmp_path / "checkpoint")
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
    """Otherwise loading moves them to the device, as it does states."""
    weight = torch.nn.Parameter(torch.ones(3))
    saved, loaded = (torch.optim.AdamW([weight]) for _ in range(2))
    weight.sum().backward()
    saved.step()
    offload_adam_states(saved, "cpu")
    loaded.load_state_dict(saved.state_dict())
    assert "exp_avg_offload_buffer" in loaded.state[weight]
    forget_host_buffers(loaded)
    assert loaded.state[weight].keys() == {"step", "exp_avg", "exp_avg_sq"}


@cases(
    "device, num_trained, bucket",
    ("cuda", 3 * 10**9, 500_000_000),
    ("cuda", 60_000_000, 60_000_000),  # an adapter: 0.1 GB and not 1
    ("cpu", 3 * 10**9, 50_000_000),
)
def test_the_optimiser_is_offloaded_on_gpus_and_its_bucket_is_small(device, num_trained, bucket):
    paper = schema.Policy(zero_stage=3, adam_offload=True, dtype="bfloat16")
    config = deepspeed_config(paper, OPTIMIZATION, device=device, num_trained=num_trained)
    zero = config["zero_optimization"]
    assert zero["reduce_bucket_size"] == bucket
    assert zero.get("offload_optimizer", {}).get("device") == ("cpu" if device == "cuda" else None)
    assert config["bf16"] == {"enabled": True}


ON_TWO_RANKS: dict[str, Any] = {
    "algorithm": ReinforcePP(kl_coef=0.1),
    "train_batch_size": 6,
    **{"warmup_steps": 2, "lr_schedule": "cosine", "num_optimizer_steps": 8},
}


def run_rank(rank: int, work: Path) -> None:
    """Every ZeRO stage on two ranks; each writes what the tests compare."""
    torch.set_num_threads(1)
    engine_module.deepspeed_config = shard_every_parameter
    # Six samples of one micro batch each over two ranks, and five: one rank gets an empty one.
    keys = {"rendezvous": work / "rendezvous2", "rank": rank, "ranks_per_policy": 2}
    make = partial(make_trainer, work / "qwen2", **keys, micro_batch_tokens=1)
    found: dict[str, Any] = {}
    for stage in ZERO_STAGES:
        trainer, resumed = (make(**ON_TWO_RANKS, zero_stage=stage) for _ in range(2))
        stats = [trainer.update(make_samples(), step=0)]
        trainer.save_checkpoint(work / f"checkpoint{stage}")
        later = make_samples(seed=1)
        stats.append(trainer.update(later, step=1))
        resumed.load_checkpoint(work / f"checkpoint{stage}")
        again = resumed.update(later, step=1)
        resumed.save_model(work / f"saved{stage}")
        weights = {"weights": weights_of(trainer), "resumed": weights_of(resumed)}
        found[str(stage)] = {"stats": stats, "again": again, **weights}

    def note(name: str, trainer, samples=(), num_updates: int = 1) -> None:
        samples = samples or make_candidates()
        stats = [trainer.update(samples, step=step) for step in range(num_updates)]
        found[name] = {"stats": stats[-1], "weights": weights_of(trainer)}

    # Five pairs over two ranks: one of them gets an empty micro batch.
    note("dpo", make(algorithm=Dpo(), zero_stage=3))
    # Groups of three samples behind a prompt over two ranks, in float32 and all sharded.
    note("shared", make(zero_stage=3, micro_batch_tokens=60))
    # The activations of the first rank's sample are recomputed, and the second has a short one.
    make_long = partial(make_trainer, work / "qwen2", **keys, micro_batch_tokens=18)
    note("uneven", make_long(zero_stage=3, gradient_checkpointing=None), make_uneven())
    # Rows of like length, and pieces of logits of which the ranks have different numbers.
    model_module.CHUNK_SIZE = 8
    padded = make_trainer(work / "gemma3", **keys, zero_stage=3, micro_batch_tokens=60)
    note("padded", padded, num_updates=3)
    torch.save(found, work / f"rank{rank}.pt")


@pytest.fixture(scope="module")
def two_ranks(folder: Path) -> list[dict[str, Any]]:
    def run(rank: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, __file__, str(rank), str(folder)]
        return run_to_end(*command, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=800)

    with ThreadPoolExecutor() as pool:
        ranks = [*pool.map(run, range(2))]
    assert [r.returncode for r in ranks] == [0, 0], "\n".join(r.stderr for r in ranks)[-3000:]
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(2)]


def assert_alike(one: UpdateStats, other: UpdateStats) -> None:
    """Equal, up to the rounding of sums in another order."""
    found, expected = (
        vars(stats) | {"advantages": list(chain.from_iterable(stats.advantages))}
        for stats in (one, other)
    )
    for name, value in found.items():
        assert value == pytest.approx(expected[name], rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("zero_stage", ZERO_STAGES)
def test_two_ranks_equal_one_and_resume_exactly(qwen2, two_ranks, zero_stage):
    alone = make_trainer(qwen2, **ON_TWO_RANKS, zero_stage=zero_stage)
    first, second = (rank[str(zero_stage)] for rank in two_ranks)
    for step in range(2):
        assert_alike(first["stats"][step], alone.update(make_samples(seed=step), step=step))
    assert largest_difference(weights_of(alone), first["weights"]) < 1e-5
    assert first["stats"] == second["stats"]
    assert first["again"] == first["stats"][1]
    saved = load_file(qwen2.parent / f"saved{zero_stage}" / "model.safetensors")
    for weights in (second["weights"], first["resumed"], {n: saved[n] for n in first["weights"]}):
        assert largest_difference(first["weights"], weights) == 0


@cases(
    "name, model, algorithm, make, num_updates",
    ("dpo", "qwen2", Dpo(), make_candidates, 1),
    ("shared", "qwen2", REINFORCE_PP, make_candidates, 1),
    ("uneven", "qwen2", REINFORCE_PP, make_uneven, 1),
    ("padded", "gemma3", REINFORCE_PP, make_candidates, 3),
)
def test_two_ranks_give_the_update_of_one(
    qwen2, two_ranks, name, model, algorithm, make, num_updates
):
    alone = make_trainer(qwen2.parent / model, algorithm=algorithm, zero_stage=3)
    *_, expected = [alone.update(make(), step=step) for step in range(num_updates)]
    for rank in two_ranks:
        assert_alike(rank[name]["stats"], expected)
        assert largest_difference(weights_of(alone), rank[name]["weights"]) < 1e-5 * num_updates


if __name__ == "__main__":
    run_rank(int(sys.argv[1]), Path(sys.argv[2]))
