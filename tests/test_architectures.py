"""Models of several architectures, with and without thinking, can be trained."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from model_types import save_model_type
from small_runs import QUICKSTART, record, write_records
from tables import cases
from tiny_models import CHAT_TEMPLATE, REFUSES_SYSTEM, SHAPE, add_noise, byte_tokenizer
from transformers import AutoConfig
from transformers import AutoModelForCausalLM as Models

from comas.preflight.checks import errors_of
from comas.preflight.configuration import load_config
from comas.preflight.inputs import find_model
from comas.preflight.preparation import check_run, prepare
from comas.run import RunDirectory
from comas.run.records import read_rows
from comas.train import train
from comas.utils.model_folder import without_weights

QWEN_3 = CHAT_TEMPLATE.replace(
    "assistant\n{% endif",
    "assistant\n{% if enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>\n\n{% endif %}{% endif",
)
"""The model may think, unless thinking is disabled."""
DEEPSEEK = CHAT_TEMPLATE.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
"""The template opens the thinking."""
NO_SYSTEM = REFUSES_SYSTEM + CHAT_TEMPLATE

ARCHITECTURES: dict[str, tuple[type[transformers.PretrainedConfig], dict[str, Any], str | None]] = {
    "qwen3": (transformers.Qwen3Config, {"tie_word_embeddings": True}, QWEN_3),
    "llama": (transformers.LlamaConfig, {"tie_word_embeddings": False}, DEEPSEEK),
    "gemma": (transformers.GemmaConfig, {"tie_word_embeddings": True}, NO_SYSTEM),
    "qwen2": (transformers.Qwen2Config, {"tie_word_embeddings": True}, CHAT_TEMPLATE),
    "gemma2": (transformers.Gemma2Config, {}, NO_SYSTEM),
    "bert": (transformers.BertConfig, {}, CHAT_TEMPLATE),
    "no template": (transformers.Qwen2Config, {}, None),
}


def save(folder: Path, name: str) -> Path:
    if name not in ARCHITECTURES:
        return save_model_type(folder, name, max_position_embeddings=8192)
    kind, changes, template = ARCHITECTURES[name]
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    if template in (QWEN_3, DEEPSEEK):
        tokenizer.add_tokens(["<think>", "</think>"])
    shape = SHAPE | {"head_dim": 32, "vocab_size": len(tokenizer)}
    shape["max_position_embeddings"] = 8192
    torch.manual_seed(0)
    model = Models.from_config(kind(**(shape | changes)))
    add_noise(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.stack
@pytest.mark.slow
def test_a_society_of_four_architectures_learns_and_keeps_its_thoughts(tmp_path):
    models = [str(save(tmp_path / name, name)) for name in ("qwen3", "llama", "gemma", "qwen2")]
    questions = write_records(tmp_path / "questions.jsonl", [record(i) for i in range(4)])
    keys = [
        *(f"society.models=[{','.join(models)}]", "society.num_agents=4", "data.probe=null"),
        "society.chat_template_kwargs=[{enable_thinking: true},{},{},{}]",
        *(f"data.train={questions}", f"data.validation={questions}", f"saves={tmp_path / 'saves'}"),
        *("interaction.num_rounds=2", "rollout.batch_size=2", "rollout.max_prompt_tokens=8000"),
        *("rollout.max_response_tokens=64", "rollout.cpu_kv_cache_mib=64", "cluster.device=cpu"),
        *("algorithm.mask_truncated=false", "optimization.warmup_steps=0"),
        *("training.num_steps=2", "training.validate_every=2", "validation.num_questions=1"),
        *("interaction.schedule=sequential", "interaction.horizon=1"),
    ]
    prepared = prepare(load_config(QUICKSTART, keys))
    with RunDirectory.create(prepared.config) as directory:
        train(prepared, directory)
    _, *steps = read_rows(directory.path / "metrics.jsonl")
    for row in steps:
        assert all(row[f"agent_{i}/rollout_mismatch/max"] < 1e-3 for i in range(4))
        assert all(row[f"agent_{i}/policy/num_samples"] > 0 for i in range(4))
        assert row["agent_1/thinking_length"] > 32  # its template opens the thinking
        assert "agent_2/thinking_length" not in row


def test_a_dry_run_says_of_a_trained_model_why_its_rows_are_padded(tmp_path):
    models = f"society.models=[{save(tmp_path / 'gemma2', 'gemma2')},quickstart/models/llama]"
    keys = [models, f"saves={tmp_path / 'saves'}", "cluster.device=cpu"]
    trained = check_run(load_config(QUICKSTART, keys))
    frozen = check_run(load_config(QUICKSTART, [*keys, "society.update_every=[0,1]"]))
    assert errors_of(trained.checks) == errors_of(frozen.checks) == []
    [check] = [check for check in trained.checks if "padded" in check.present]
    assert check.subject == f"model {tmp_path}/gemma2"
    assert check.present.endswith("model_type = gemma2 are not known to be packable")
    assert not any("padded" in check.present for check in frozen.checks)


@cases("model_type", "bart", "t5")
def test_an_encoder_decoder_is_refused(model_type, tmp_path):
    AutoConfig.for_model(model_type).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"model_type is {model_type}, of which .* no causal"):
        without_weights(str(tmp_path))


def test_a_model_that_cannot_be_trained_is_refused_by_the_dry_run(tmp_path):
    models = f"society.models=[{save(tmp_path / 'bert', 'bert')},quickstart/models/llama]"
    keys = [models, f"saves={tmp_path / 'saves'}", "cluster.device=cpu"]
    [fault] = errors_of(check_run(load_config(QUICKSTART, keys)).checks)
    assert "(bert) lets tokens attend to later ones" in fault


@cases("name, setting, said")
def test_a_template_has_a_place_for_what_it_is_told(name, setting, said, tmp_path):
    model = str(save(tmp_path / "m", name))
    with pytest.raises(ValueError, match=said):
        find_model(load_config(None, [setting, f"society.models=[{model}]"]), model)
