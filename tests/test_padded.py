"""Models with a padded row for each sample: their log-probs and gradients are those of
transformers."""

import math
from itertools import product
from random import Random

import builders
import pytest
import torch
from model_matrix import LIMIT, REPORT, TYPES
from model_types import save_model_type, tiny_config
from safetensors.torch import load_file
from tables import cases
from tiny_models import distributions
from transformers import AutoModelForCausalLM

from comas.config.schema import Policy
from comas.engines.policy.architecture import PACKABLE, check_trainable, why_padded
from comas.engines.policy.model import PaddedModel, load_response_model
from comas.engines.policy.weights import save_model, weights_as_saved
from comas.policy_optimization.batching import assemble
from comas.types import TrainingSample

pytestmark = pytest.mark.stack

POLICY = Policy(dtype="float32")
CPU = torch.device("cpu")
TEMPERATURE = 0.7
FAST = ("gpt2", "llama", "mistral", "opt", "qwen3_moe")


def samples_of(*lengths: tuple[int, int], seed: int = 0) -> list[TrainingSample]:
    rng = Random(seed)

    def sample(*sizes: int) -> TrainingSample:
        prompt, response = ([rng.randrange(3, 259) for _ in range(size)] for size in sizes)
        tokens = {"response_token_ids": response, "rollout_logprobs": [0.0] * len(response)}
        return builders.sample(prompt_token_ids=prompt, **tokens)

    return [sample(*each) for each in lengths]


SAMPLES = samples_of((20, 15), (3, 2), (5, 9))
LONGER = samples_of((20, 15), (3, 2), (5, 70), seed=1)


def alone(folder, sample, change=lambda model: None) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs and entropies by transformers' plainest code, of one sample."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    change(model)
    with torch.no_grad():
        distribution = distributions(model, sample, TEMPERATURE)
    return distribution.log_prob(torch.tensor(sample.response_token_ids)), distribution.entropy()


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    "model_type",
    ["gemma2", "gemma3_text", "gemma4_text", "mistral", "qwen3_next", "gpt_oss", "bloom"],
)
def test_padded_log_probs_are_those_of_each_sample_alone(model_type, tmp_path):
    folder = save_model_type(tmp_path, model_type)
    model = load_response_model(folder, POLICY, max_model_len=96).train()
    assert isinstance(model, PaddedModel)
    logprobs, entropies = model(assemble(SAMPLES, device=CPU, temperature=TEMPERATURE))
    others, _ = model(assemble([*SAMPLES[:2], LONGER[2]], device=CPU, temperature=TEMPERATURE))
    for i, sample in enumerate(SAMPLES):
        length = len(sample.response_token_ids)
        found = logprobs[i, :length], entropies[i, :length]
        torch.testing.assert_close(found, alone(folder, sample), atol=2e-5, rtol=1e-5)
        if i < 2:
            torch.testing.assert_close(others[i, :length], logprobs[i, :length])
    logprobs.sum().backward()
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())
    assert not logprobs[1, 2:].any()


@pytest.mark.parametrize(
    "model_type",
    [t if t in FAST else pytest.param(t, marks=pytest.mark.slow) for t in sorted(PACKABLE)],
)
def test_where_packing_is_right_padded_rows_give_the_same(model_type, tmp_path):
    changes = {"sliding_window": None} if model_type == "mistral" else {}
    folder = save_model_type(tmp_path, model_type, **changes)
    packed = load_response_model(folder, POLICY, max_model_len=96).train()
    assert not packed.pads and packed.shares_prompts
    batch = assemble(SAMPLES, device=CPU, temperature=TEMPERATURE)
    expected = packed(batch)
    expected[0].sum().backward()
    gradients_of_packed = gradients(packed)
    packed.zero_grad()
    packed.language_model.set_attn_implementation("sdpa")
    padded = PaddedModel(packed.language_model)
    found = padded(batch)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    found[0].sum().backward()
    found_gradients = gradients(padded)
    for name, gradient in gradients_of_packed.items():
        if name.startswith("language_model."):
            torch.testing.assert_close(found_gradients[name], gradient, atol=1e-4, rtol=1e-3)
    for i, sample in enumerate(SAMPLES):
        length = len(sample.response_token_ids)
        expected = alone(folder, sample)[0]
        torch.testing.assert_close(found[0][i, :length], expected, atol=2e-5, rtol=0)


@cases("model_type, engine", *product(("phi3", "granite"), ((96, 4.0), (35, 1.5))))
def test_longrope_has_the_engines_frequencies_whatever_lies_beside(model_type, engine, tmp_path):
    max_model_len, factor = engine
    rope = {
        **{"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 35},
        **{"short_factor": [1.5] * 16, "long_factor": [4.0] * 16, "attention_factor": 3.0},
    }
    lengths = {"max_position_embeddings": 140, "original_max_position_embeddings": 35}
    folder = save_model_type(tmp_path, model_type, rope_parameters=rope, **lengths)
    model = load_response_model(folder, POLICY, max_model_len=max_model_len).train()
    assert model.pads == (model_type == "granite")
    samples = [*SAMPLES, *samples_of((4, max_model_len - 4), seed=1)]
    found, _ = model(assemble(samples, device=CPU, temperature=TEMPERATURE))
    # vLLM: 1 / (factor x theta^(2i / 32)), times sqrt(1 + ln(140 / 35) / ln(35)).
    frequencies = 1 / (factor * 1e4 ** (torch.arange(0, 32, 2) / 32))

    def as_in_vllm(reference):
        rotary = reference.model.rotary_emb
        rotary.rope_type, rotary.inv_freq = "default", frequencies
        rotary.attention_scaling = math.sqrt(1 + math.log(4) / math.log(35))

    for i, sample in enumerate(samples):
        length = len(sample.response_token_ids)
        expected, _ = alone(folder, sample, as_in_vllm)
        torch.testing.assert_close(found[i, :length], expected, atol=2e-5, rtol=1e-5)
        by_itself, _ = model(assemble([sample], device=CPU, temperature=TEMPERATURE))
        torch.testing.assert_close(by_itself[0], expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("model_type", ["qwen3_moe", "mixtral", "gemma4_text"])
def test_weights_are_sent_and_saved_as_in_a_checkpoint(model_type, tmp_path):
    base = save_model_type(tmp_path / "base", model_type)
    in_file = load_file(base / "model.safetensors")
    model = load_response_model(base, POLICY, max_model_len=96).language_model
    sent = dict(weights_as_saved(model))
    assert sent.keys() == in_file.keys()
    assert all(torch.equal(weight, in_file[name]) for name, weight in sent.items())
    save_model(model, tmp_path / "saved", base=base, rank=0)
    saved = load_file(tmp_path / "saved/model.safetensors")
    assert saved.keys() == in_file.keys()
    assert all(torch.equal(weight, in_file[name]) for name, weight in saved.items())


def test_the_table_of_model_types_says_how_each_is_trained():
    rows = [line.strip("| \n").split(" | ") for line in REPORT.read_text().splitlines()[6:]]
    assert [row[0] for row in rows] == TYPES.split() and len(rows) >= 20
    for model_type, trained, *numbers in rows:
        try:
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(tiny_config(model_type))
            check_trainable(model)
            expected = "packed" if why_padded(model) is None else "padded"
        except ValueError:
            expected = "no"
        assert trained == expected, model_type
        assert all(float(number) < LIMIT for number in numbers if number[:1].isdigit())
